(** * The ledger is a privacy filter: an analyst chooses everything by what was released, and the cap holds.

    The argument is made once, for whatever decides about requests ([transcripts_are_close]): if each job's
    law changes no more than the unit is charged for it, then the chance of a transcript changes no more than
    all its charges together. It is used for [apply] here, and for [step] in People.v. *)

Require Import ZArith List Lia Bool Reals Lra.
Require Import Model Jobs Maxima Scopes Chances Ledger.
Import ListNotations.
Open Scope R_scope.

(** ** Chances that are close *)

Lemma close_trans : forall e f p q r, close e p q -> close f q r -> close (e + f) p r.
Proof.
  intros e f p q r [A B] [C D]. unfold close. rewrite exp_plus. pose proof (exp_pos e).
  pose proof (exp_pos f).
  split; [apply Rle_trans with (exp e * q) | apply Rle_trans with (exp f * q)]; auto.
  - rewrite Rmult_assoc. apply Rmult_le_compat_l; lra.
  - rewrite (Rmult_comm (exp e)), Rmult_assoc. apply Rmult_le_compat_l; lra.
Qed.

(** ** Transcripts *)

Section Transcripts.
  Context {state request data outcome : Type} (advance : state -> request -> option state).
  Variable fine : state -> Prop.
  Variable lost : state -> R.            (** what the unit has lost in a state *)
  Variables d d' : data.
  Variable s : @strategy request data outcome.

  Hypothesis fine_and_growing : forall st q st', fine st -> advance st q = Some st' -> fine st' /\
    lost st <= lost st'.
  Hypothesis charged_first : forall h q law st st' o, s h = Start q law -> fine st ->
    advance st q = Some st' ->
    0 <= law d o /\ 0 <= law d' o /\ close (lost st' - lost st) (law d o) (law d' o).

  Lemma next_is_fine : forall st (a : @action request data outcome), fine st -> fine (next advance st a) /\
    lost st <= lost (next advance st a).
  Proof.
    intros st a F. unfold next.
    destruct (advance st (asked a)) eqn:E; [exact (fine_and_growing _ _ _ F E) | split; [exact F | lra]].
  Qed.

  Lemma event_is_close : forall h st ev, fine st ->
    let p := chance_of_event advance st (s h) d ev in let q := chance_of_event advance st (s h) d' ev in
    0 <= p /\ 0 <= q /\ close (lost (next advance st (s h)) - lost st) p q.
  Proof.
    intros h st ev F. cbv zeta. pose proof (next_is_fine st (s h) F) as [_ G].
    assert (Same : forall p, 0 <= p -> 0 <= p /\ 0 <= p /\
      close (lost (next advance st (s h)) - lost st) p p).
    { intros p P. split; [exact P|]. split; [exact P|]. apply close_same; auto. lra. }
    unfold chance_of_event. destruct (s h) as [q|q law] eqn:E.
    - destruct (advance st (asked (Write q))), ev as [[|]|]; apply Same; lra.
    - unfold next in *.
      destruct (advance st (asked (Start q law))) as [st'|] eqn:A, ev as [[|]|o]; try (apply Same; lra).
      exact (charged_first _ _ _ _ _ o E F A).
  Qed.

  Lemma reached_is_fine : forall w h st, fine st -> fine (reached advance s st h w).
  Proof.
    induction w as [|ev w IH]; intros h st F; cbn [reached]; [exact F|]. apply IH.
    exact (proj1 (next_is_fine st (s h) F)).
  Qed.

  Theorem transcripts_are_close : forall w h st, fine st ->
    let p := chance advance s st h d w in let q := chance advance s st h d' w in
    let final := reached advance s st h w in
    0 <= p /\ 0 <= q /\ fine final /\ close (lost final - lost st) p q.
  Proof.
    cbv zeta. induction w as [|ev w IH]; intros h st F; cbn [chance reached].
    - split; [lra|]. split; [lra|]. split; [exact F|]. apply close_same; lra.
    - destruct (event_is_close h st ev F) as [A [B C]]. destruct (next_is_fine st (s h) F) as [F' _].
      destruct (IH (h ++ [ev]) _ F') as [A' [B' [F'' C']]].
      split; [now apply Rmult_le_pos|]. split; [now apply Rmult_le_pos|]. split; [exact F''|].
      set (mid := next advance st (s h)) in *. set (final := reached advance s mid (h ++ [ev]) w) in *.
      replace (lost final - lost st) with ((lost mid - lost st) + (lost final - lost mid)) by ring.
      now apply close_product.
  Qed.
End Transcripts.

(** Chances of sets of transcripts are as close as those of their transcripts. *)
Lemma sums_are_close : forall A (f g : A -> R) e ws, (forall w, In w ws -> close e (f w) (g w)) ->
  close e (sum_of f ws) (sum_of g ws).
Proof.
  intros A f g e ws H. split.
  - rewrite Rmult_comm, <- sum_of_scale. apply sum_of_le. intros w I. rewrite Rmult_comm. now apply H.
  - rewrite Rmult_comm, <- sum_of_scale. apply sum_of_le. intros w I. rewrite Rmult_comm. now apply H.
Qed.

(** ** Rows of one unit *)

Lemma filter_added : forall row (f : row -> bool) xs d d', added xs d d' ->
  added (filter f xs) (filter f d) (filter f d').
Proof.
  intros row f xs d d' A. induction A as [d|x xs d d1 d2 A IH]; [constructor|].
  rewrite filter_app in *. simpl. destruct (f x); [now constructor | exact IH].
Qed.

Lemma private_for_rows : forall row outcome e (law : list row -> outcome -> R), private e law ->
  forall xs d d' o, added xs d d' -> close (INR (length xs) * e) (law d o) (law d' o).
Proof.
  intros row outcome e law [N P] xs d d' o A. induction A as [d|x xs d d1 d2 A IH].
  - simpl. rewrite Rmult_0_l. apply close_same; [lra | apply N].
  - assert (One : close e (law (d1 ++ d2) o) (law (d1 ++ x :: d2) o)) by (apply (P _ x); repeat constructor).
    replace (INR (length (x :: xs)) * e) with (INR (length xs) * e + e) by (cbn [length]; rewrite S_INR;
      ring).
    exact (close_trans _ _ _ _ _ IH One).
Qed.

(** What a unit loses is the mean over k rows of what their cells are charged. *)
Lemma weight_nonnegative : forall unit k, 0 <= unit -> (0 < k)%nat -> 0 <= unit / INR k.
Proof. intros unit k U K. apply Rmult_le_pos; [exact U|]. left. now apply Rinv_0_lt_compat, lt_0_INR. Qed.

Lemma mean_below : forall A unit k (f : A -> Z) xs most, 0 <= unit -> (0 < k)%nat -> (length xs <= k)%nat ->
  (0 <= most)%Z -> (forall x, In x xs -> f x <= most)%Z ->
  unit / INR k * IZR (sum_over f xs) <= unit * IZR most.
Proof.
  intros A unit k f xs most U K L M F. pose proof (lt_0_INR k K).
  replace (unit * IZR most) with (unit / INR k * (INR k * IZR most)) by (field; lra).
  apply Rmult_le_compat_l; [now apply weight_nonnegative|]. rewrite INR_IZR_INZ, <- mult_IZR. apply IZR_le.
  apply Z.le_trans with (Z.of_nat (length xs) * most)%Z; [|nia].
  rewrite <- sum_over_constant. now apply sum_over_le.
Qed.

(** What is charged to rows is the amount, once for each that is read. *)
Lemma shares_by_reads : forall row (cell_of : row -> joint_cell) b xs,
  sum_over (fun x => share (cell_of x) b) xs =
  (Z.of_nat (length (filter (fun x => covers (scope_of b) (cell_of x)) xs)) * amount b)%Z.
Proof.
  intros row cell_of b xs. rewrite <- (sum_over_constant (amount b)), sum_over_filter. now apply sum_over_ext.
Qed.

Lemma honest_job_is_close : forall row outcome unit k cell_of b (law : list row -> outcome -> R),
  (0 < k)%nat -> honest_job unit k cell_of b law -> forall xs d d' o, added xs d d' ->
  0 <= law d o /\ 0 <= law d' o /\
  close (unit / INR k * IZR (sum_over (fun x => share (cell_of x) b) xs)) (law d o) (law d' o).
Proof.
  intros row outcome unit k cell_of b law K [e [rule [E [P [L R]]]]] xs d d' o A. rewrite !R.
  set (reads := fun x => covers (scope_of b) (cell_of x)). pose proof (proj1 P) as N.
  split; [apply N|]. split; [apply N|].
  apply close_larger with (INR (length (filter reads xs)) * e); try apply N.
  2: { apply private_for_rows; [exact P | now apply filter_added]. }
  rewrite shares_by_reads. fold reads. rewrite mult_IZR, <- INR_IZR_INZ. apply lt_0_INR in K. set (n := INR (length _)).
  apply (Rmult_le_reg_l (INR k)); [exact K|].
  replace (INR k * (unit / INR k * (n * IZR (amount b)))) with (n * (unit * IZR (amount b))) by (field; lra).
  replace (INR k * (n * e)) with (n * (INR k * e)) by ring.
  apply Rmult_le_compat_l; [apply pos_INR | exact L].
Qed.

(** ** The ledger *)

Section Ledger.
  Variable ps : list partition.
  Variable tightest : list box -> scope -> Z.
  Hypothesis tightest_bounds : forall bs s r,
    nonnegative bs -> record ps r -> covers s r = true -> (load bs r <= tightest bs s)%Z.
  Context {row outcome : Type} (cell_of : row -> joint_cell) (unit : R) (k : nat).
  Hypothesis rows_are_records : forall x, record ps (cell_of x).
  Hypothesis unit_nonnegative : 0 <= unit.
  Hypothesis k_positive : (0 < k)%nat.
  Variable s : @strategy entry (list row) outcome.
  Hypothesis s_is_honest : honest unit k cell_of s.

  Notation advance := (apply tightest).
  Notation charges xs st := (sum_over (fun x => load (charged st) (cell_of x)) xs).

  Lemma charges_grow : forall xs st e st', advance st e = Some st' ->
    charges xs st' = (charges xs st + sum_over (fun x => spent_by (cell_of x) e) xs)%Z.
  Proof.
    intros xs st e st' H. rewrite <- sum_over_add. apply sum_over_ext. intros x _.
    exact (apply_charged _ _ _ _ _ H).
  Qed.

  (** In ε what the loads came to is a limit, too. *)
  Theorem ledger_filter_by_load : forall c xs d d' most ws, (0 <= c)%Z -> (length xs <= k)%nat ->
    added xs d d' -> (0 <= most)%Z -> (forall w, In w ws -> forall r, record ps r ->
      (load (boxes (reached advance s (opened c) [] w)) r <= most)%Z) ->
    close (unit * IZR most)
      (sum_of (chance advance s (opened c) [] d) ws) (sum_of (chance advance s (opened c) [] d') ws).
  Proof.
    intros c xs d d' most ws C L A M Below. apply sums_are_close. intros w I. specialize (Below w I).
    destruct (transcripts_are_close advance (sound ps) (fun st => unit / INR k * IZR (charges xs st)) d d' s)
      with (w := w) (h := @nil (@event outcome)) (st := opened c) as [P [Q [S R]]].
    - intros st e st' S H. split; [exact (apply_sound ps _ tightest_bounds _ _ _ S H)|].
      apply Rmult_le_compat_l; [now apply weight_nonnegative|]. apply IZR_le, sum_over_le. intros x _.
      rewrite (apply_charged _ _ _ _ (cell_of x) H).
      pose proof (spent_by_nonnegative _ _ _ _ _ (cell_of x) S H). lia.
    - intros h q law st st' o E S H. destruct (s_is_honest _ _ _ E) as [job [b [Q J]]]. subst q.
      rewrite (charges_grow _ _ _ _ H), plus_IZR, Rmult_plus_distr_l.
      replace (_ + _ - _) with (unit / INR k * IZR (sum_over (fun x => share (cell_of x) b) xs))
        by (simpl; ring).
      exact (honest_job_is_close _ _ _ _ _ _ _ k_positive J _ _ _ o A).
    - now apply opened_sound.
    - refine (close_larger _ _ _ _ _ P Q R). unfold load at 2. simpl charged. simpl (sum_over _ []).
      rewrite sum_over_constant, Z.mul_0_r, Rmult_0_r, Rminus_0_r.
      apply mean_below; auto. intros x _. specialize (Below _ (rows_are_records x)).
      rewrite load_boxes in Below.
      pose proof (load_nonnegative _ (cell_of x) (proj2 (sound_parts _ _ S))). lia.
  Qed.

  Theorem ledger_filter : forall c xs d d' highest ws, (0 <= c)%Z -> (length xs <= k)%nat -> added xs d d' ->
    (forall w, In w ws -> highest_cap (reached advance s (opened c) [] w) <= highest)%Z ->
    close (unit * IZR highest)
      (sum_of (chance advance s (opened c) [] d) ws) (sum_of (chance advance s (opened c) [] d') ws).
  Proof.
    intros c xs d d' highest ws C L A Below.
    assert (Sound : forall w, sound ps (reached advance s (opened c) [] w)).
    { intro w. apply (reached_is_fine advance (sound ps) (fun _ => 0)); [|now apply opened_sound].
      intros st q st' S H. split; [exact (apply_sound ps _ tightest_bounds _ _ _ S H) | lra]. }
    destruct ws as [|w ws]; [simpl; split; lra|]. apply (ledger_filter_by_load c xs d d' highest (w :: ws)); auto.
    - pose proof (Below w (or_introl eq_refl)). pose proof (cap_below _ _ (Sound w)). lia.
    - intros v V r Rec. specialize (Below v V). pose proof (never_over _ _ (Sound v) r Rec). lia.
  Qed.
End Ledger.
