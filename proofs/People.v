(** * A population is a privacy filter for persons, who come or go in all of its datasets at once.

    A person has up to k rows in each dataset, where k may differ between datasets.
    What is charged for a person is
    taken over the rows of each dataset in the mean, and over datasets in the sum. *)

Require Import ZArith List Lia Bool Arith Reals Lra.
Require Import Model Jobs Maxima Scopes Chances Ledger Populations Filter.
Import ListNotations.
Open Scope R_scope.

(** ** Sums over datasets *)

Lemma sum_of_changed_at : forall f g j l, (forall i, i <> j -> f i = g i) -> NoDup l ->
  sum_of f l - sum_of g l = if in_dec Nat.eq_dec j l then f j - g j else 0.
Proof.
  intros f g j l H N. induction l as [|i l IH]; [simpl; lra|]. inversion N as [|? ? A B]; subst.
  specialize (IH B).
  simpl sum_of.
  destruct (in_dec Nat.eq_dec j (i :: l)) as [I|I], (in_dec Nat.eq_dec j l) as [J|J]; simpl in I.
  - rewrite (H i) by (intro; subst; contradiction). lra.
  - destruct I as [I|I]; [subst; lra | contradiction].
  - tauto.
  - rewrite (H i) by tauto. lra.
Qed.

Lemma sum_of_integers : forall unit (f : nat ->
  Z) l, sum_of (fun i => unit * IZR (f i)) l = unit * IZR (sum_over f l).
Proof. induction l as [|i l IH]; simpl; [ring|]. rewrite IH, plus_IZR. ring. Qed.

Lemma sum_over_incl : forall (f : nat -> Z) l m, NoDup l -> incl l m -> (forall i, 0 <= f i)%Z ->
  (sum_over f l <= sum_over f m)%Z.
Proof.
  intros f l m N I P. revert m I. induction l as [|i l IH]; intros m I.
  - clear I. induction m as [|j m IHm]; simpl; [lia|]. specialize (P j). simpl in IHm. lia.
  - inversion N as [|? ? A B]; subst. destruct (in_split i m (I i (or_introl eq_refl))) as [m1 [m2 E]].
    subst m.
    assert (J : incl l (m1 ++ m2)).
    { intros j J. specialize (I j (or_intror J)). apply in_app_or in I. apply in_or_app.
      destruct I as [I|[I|I]]; auto. subst. contradiction. }
    specialize (IH B _ J). rewrite sum_over_app in *. simpl. lia.
Qed.

(** The row of a list with the largest value. *)
Fixpoint fullest_row {row} (f : row -> Z) (xs : list row) : option row :=
  match xs with
  | [] => None
  | x :: rest =>
      match fullest_row f rest with
      | None => Some x
      | Some y => Some (if (f x <=? f y)%Z then y else x)
      end
  end.

Lemma fullest_row_is_fullest : forall row (f : row -> Z) xs,
  match fullest_row f xs with None => xs = [] | Some y => forall x, In x xs -> (f x <= f y)%Z end.
Proof.
  induction xs as [|x xs IH]; simpl; [reflexivity|]. destruct (fullest_row f xs) as [y|].
  - intros z [E|I]; [subst; destruct (Z.leb_spec (f z) (f y)); lia|]. specialize (IH z I).
    destruct (Z.leb_spec (f x) (f y)); lia.
  - subst xs. intros z [E|[]]. subst. lia.
Qed.

Section People.
  Variable partitions : nat -> list partition.
  Variable tightest : list partition -> list box -> scope -> Z.
  Variable is_pure : bool.
  Hypothesis tightest_bounds : forall ps bs s r,
    nonnegative bs -> record ps r -> covers s r = true -> (load bs r <= tightest ps bs s)%Z.
  Hypothesis some_record : forall i, exists r, record (partitions i) r.

  Context {row outcome : Type} (cell_of : nat -> row -> joint_cell) (unit : R) (k : nat -> nat).
  Hypothesis rows_are_records : forall i x, record (partitions i) (cell_of i x).
  Hypothesis unit_nonnegative : 0 <= unit.
  Hypothesis k_positive : forall i, (0 < k i)%nat.
  Variable s : @strategy act (nat -> list row) outcome.
  Hypothesis s_is_honest : honest_in_world unit k cell_of s.

  Notation step := (step partitions tightest is_pure).
  Notation sound_world := (sound_world partitions is_pure).

  (** What is charged to a record in a dataset, without what the account took over from another. *)
  Definition own_charged (w : world) (i : nat) (r : joint_cell) : Z :=
    (load (charged (account w i)) r - inherited w i)%Z.

  Lemma own_charged_grows : forall w a w' i r, sound_world w -> step w a = Some w' ->
    (own_charged w i r <= own_charged w' i r)%Z.
  Proof.
    intros w a w' i r S H. unfold own_charged. destruct a as [j e|j|j m h|c].
    - destruct (own_step _ _ _ _ _ _ _ H) as [_ [st' [c [A [E _]]]]]. subst w'. simpl.
      destruct (Nat.eq_dec i j); [subst; rewrite put_same | rewrite put_other by assumption; lia].
      rewrite (apply_charged _ _ _ _ r A).
      pose proof (spent_by_nonnegative (partitions j) _ _ _ _ r (accounts _ _ _ S j) A). lia.
    - cbn [Model.step] in H. destruct (_ || _)%bool; [discriminate|]. injection H as H. subst w'. simpl. lia.
    - cbn [Model.step] in H.
      destruct (negb _ || is_member w j || is_in j (closed w))%bool eqn:M; [discriminate|].
      destruct (apply _ (account w j) _) as [st'|] eqn:A; [|discriminate]. injection H as H. subst w'. simpl.
      destruct (Nat.eq_dec i j); [subst; rewrite !put_same | rewrite !put_other by assumption; lia].
      rewrite !orb_false_iff in M. unfold is_member in M. rewrite !is_in_false in M. destruct M as [[_ M] O].
      destruct (fresh _ _ _ S j M O) as [F _]. rewrite F, (apply_charged _ _ _ _ r A). simpl.
      apply apply_accepted in A. inversion A as [|? ? U D C| | |? ? ? ? ? [E|E]]; subst; try discriminate.
      apply unused in U. destruct U as [U _]. rewrite U. unfold load. simpl. lia.
    - cbn [Model.step] in H. destruct (_ || _)%bool; [discriminate|]. injection H as H. subst w'. simpl. lia.
  Qed.

  Lemma own_charged_by_charge : forall w j job b w' i r, step w (Own j (Charge job b)) = Some w' ->
    own_charged w' i r = (own_charged w i r + if Nat.eq_dec i j then share r b else 0)%Z.
  Proof.
    intros w j job b w' i r H. unfold own_charged.
    destruct (own_step _ _ _ _ _ _ _ H) as [_ [st' [c [A [E _]]]]]. subst w'.
    simpl. destruct (Nat.eq_dec i j); [subst; rewrite put_same | rewrite put_other by assumption; lia].
    rewrite (apply_charged _ _ _ _ r A). simpl. lia.
  Qed.

  Variable xs : nat -> list row.         (** the person's rows *)
  Variable datasets : list nat.          (** where the person has rows *)
  Hypothesis datasets_differ : NoDup datasets.
  Hypothesis rows_are_in_datasets : forall i, xs i <> [] -> In i datasets.
  Hypothesis at_most_k : forall i, (length (xs i) <= k i)%nat.

  Definition mean (w : world) (i : nat) : R :=
    unit / INR (k i) * IZR (sum_over (fun x => own_charged w i (cell_of i x)) (xs i)).

  Lemma mean_grows : forall w a w' i, sound_world w -> step w a = Some w' -> mean w i <= mean w' i.
  Proof.
    intros w a w' i S H. apply Rmult_le_compat_l; [now apply weight_nonnegative|]. apply IZR_le, sum_over_le.
    intros x _.
    exact (own_charged_grows _ _ _ _ _ S H).
  Qed.

  Lemma mean_by_charge : forall w j job b w', step w (Own j (Charge job b)) = Some w' ->
    sum_of (mean w') datasets - sum_of (mean w) datasets =
    unit / INR (k j) * IZR (sum_over (fun x => share (cell_of j x) b) (xs j)).
  Proof.
    intros w j job b w' H. rewrite (sum_of_changed_at _ _ j); [| |exact datasets_differ].
    - unfold mean. destruct (in_dec Nat.eq_dec j datasets) as [I|I].
      + rewrite <- Rmult_minus_distr_l, <- minus_IZR. do 2 f_equal.
        induction (xs j) as [|x rest IH]; [reflexivity|].
        simpl. rewrite <- IH, (own_charged_by_charge _ _ _ _ _ j _ H).
        destruct (Nat.eq_dec j j); [lia | contradiction].
      + destruct (xs j) eqn:E; [simpl; ring|]. exfalso. apply I, rows_are_in_datasets. now rewrite E.
    - intros i N. unfold mean. do 2 f_equal. apply sum_over_ext. intros x _.
      rewrite (own_charged_by_charge _ _ _ _ _ i _ H). destruct (Nat.eq_dec i j); [contradiction | lia].
  Qed.

  (** Of each dataset, the row of the largest load: a person with these rows alone loses at least the means.
  *)
  Definition worst (w : world) (i : nat) : option joint_cell :=
    option_map (cell_of i) (fullest_row (fun x => load (boxes (account w i)) (cell_of i x)) (xs i)).

  Lemma mean_below_worst : forall w i, sound_world w ->
    (0 <= own_loss w (worst w) i)%Z /\ mean w i <= unit * IZR (own_loss w (worst w) i).
  Proof.
    intros w i S. pose proof (accounts _ _ _ S i) as A. destruct (sound_parts _ _ A) as [N M].
    assert (Charged : forall r,
      (inherited w i <= load (charged (account w i)) r <= load (boxes (account w i)) r)%Z).
    { intro r. rewrite load_boxes. pose proof (load_nonnegative _ r N). pose proof (load_nonnegative _ r M).
      destruct (took_over _ _ _ S i) as [T|T]; [rewrite T; lia|]. pose proof (share_le_load _ _ r N T) as L.
      unfold share in L. simpl in L. lia. }
    pose proof (fullest_row_is_fullest _ (fun x => load (boxes (account w i)) (cell_of i x)) (xs i)) as F.
    unfold mean, own_loss, worst.
    destruct (fullest_row _ (xs i)) as [y|]; simpl in *; [|rewrite F; simpl; split; [lia | lra]].
    pose proof (Charged (cell_of i y)) as Cy. split; [lia|].
    set (most := (load (boxes (account w i)) (cell_of i y) - _)%Z) in *.
    apply mean_below; auto; [lia|]. intros x I. specialize (F x I). specialize (Charged (cell_of i x)).
    unfold own_charged. lia.
  Qed.

  Lemma means_below_printed : forall w, sound_world w -> incl datasets (counted w) ->
    sum_of (mean w) datasets <= unit * IZR (printed is_pure w).
  Proof.
    intros w S I. apply Rle_trans with (unit * IZR (sum_over (own_loss w (worst w)) datasets)).
    - rewrite <- sum_of_integers. apply sum_of_le. intros i _. now apply mean_below_worst.
    - apply Rmult_le_compat_l; [assumption|]. apply IZR_le.
      assert (P : person partitions (worst w)).
      { intros i r E. unfold worst in E. destruct (fullest_row _ (xs i)); [|discriminate]. injection E as E.
      subst. auto. }
      pose proof (loss_below_together _ _ w _ S P). pose proof (together_below_printed _ _ w S).
      pose proof (sum_over_incl (own_loss w (worst w)) datasets (counted w) datasets_differ I) as L.
      unfold loss in *. specialize (L (fun i => proj1 (mean_below_worst w i S))). lia.
  Qed.

  Theorem population_filter : forall caps c d d' highest ws, (forall i, 0 <= caps i)%Z -> (0 <= c)%Z ->
    (forall i, added (xs i) (d i) (d' i)) -> let start := opened_world caps c in
    (forall w, In w ws -> let final := reached step s start [] w in
       incl datasets (counted final) /\ (printed is_pure final <= highest)%Z) ->
    close (unit * IZR highest) (sum_of (chance step s start [] d) ws) (sum_of (chance step s start [] d') ws).
  Proof.
    intros caps c d d' highest ws C D A start Below. apply sums_are_close. intros w In_ws.
    destruct (Below w In_ws) as [I B]. clear Below In_ws ws.
    destruct (transcripts_are_close step sound_world (fun w => sum_of (mean w) datasets) d d' s)
      with (w := w) (h := @nil (@event outcome)) (st := start) as [P [Q [S R]]].
    - intros v a v' S H. split; [exact (step_sound _ _ _ tightest_bounds some_record _ _ _ S H)|].
      apply sum_of_le. intros i _. exact (mean_grows _ _ _ i S H).
    - intros h q law v v' o E S H. destruct (s_is_honest _ _ _ E) as [i [job [b [own [F [J L]]]]]]. subst q.
      rewrite !L, (mean_by_charge _ _ _ _ _ H).
      exact (honest_job_is_close _ _ _ _ _ _ _ (k_positive i) J _ _ _ o (A i)).
    - now apply opened_world_sound.
    - refine (close_larger _ _ _ _ _ P Q R).
      replace (sum_of (mean start) datasets) with 0.
      2: { rewrite (sum_of_ext _ (fun _ => 0 * 0)); [rewrite sum_of_scale; ring|]. intros i _.
           unfold mean, own_charged. simpl. unfold load. simpl. rewrite sum_over_constant, Z.mul_0_r. ring. }
      rewrite Rminus_0_r. apply Rle_trans with (1 := means_below_printed _ S I).
      apply Rmult_le_compat_l; [assumption | now apply IZR_le].
  Qed.
End People.
