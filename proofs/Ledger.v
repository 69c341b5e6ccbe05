(** * The life of an account: at every prefix of its entries, no record is over the highest cap. *)

Require Import ZArith List Lia Bool.
Require Import Model Maxima Scopes.
Import ListNotations.
Open Scope Z_scope.

(** ** Amounts and loads *)

Lemma nonnegative_app : forall bs cs, nonnegative (bs ++ cs) <-> nonnegative bs /\ nonnegative cs.
Proof.
  intros bs cs. unfold nonnegative. split.
  - intro N. split; intros b I; apply N, in_or_app; auto.
  - intros [N M] b I. apply in_app_or in I. destruct I; auto.
Qed.

Lemma nonnegative_cons : forall b bs, nonnegative (b :: bs) <-> 0 <= amount b /\ nonnegative bs.
Proof.
  intros b bs. unfold nonnegative. split.
  - intro N. split; [apply N; now left | intros c I; apply N; now right].
  - intros [A N] c [I|I]; [now subst | auto].
Qed.

Lemma share_nonnegative : forall r b, 0 <= amount b -> 0 <= share r b.
Proof. intros r b A. unfold share. destruct (covers (scope_of b) r); lia. Qed.

Lemma load_unused : forall st r, is_used st = false -> load (boxes st) r = 0.
Proof. intros st r. unfold is_used. destruct (boxes st); [reflexivity | discriminate]. Qed.

Lemma load_boxes : forall st r, load (boxes st) r = load (charged st) r + load (map snd (reserved st)) r.
Proof. intros. apply sum_over_app. Qed.

Lemma unused : forall st, is_used st = false -> charged st = [] /\ reserved st = [].
Proof. intros st. unfold is_used, boxes. now destruct (charged st), (reserved st). Qed.

Lemma take_split : forall p l rest, take p l = Some rest ->
  exists before after, l = before ++ p :: after /\ rest = before ++ after.
Proof.
  induction l as [|q l IH]; simpl; intros rest H; [discriminate|].
  destruct (same_reservation p q) as [E|_].
  - inversion H; subst. now exists [], rest.
  - destruct (take p l) as [rest'|]; [|discriminate]. inversion H; subst.
    destruct (IH rest' eq_refl) as [before [after [E F]]]. subst. now exists (q :: before), after.
Qed.

Lemma follow_app : forall S Q (advance : S -> Q -> option S) p q st st',
  follow advance st (p ++ q) = Some st' ->
  exists mid, follow advance st p = Some mid /\ follow advance mid q = Some st'.
Proof.
  induction p as [|x p IH]; simpl; intros q st st' H; [eauto|].
  destruct (advance st x); [auto | discriminate].
Qed.

Section Account.
  Variable ps : list partition.
  Variable tightest : list box -> scope -> Z.
  Hypothesis tightest_bounds : forall bs s r,
    nonnegative bs -> record ps r -> covers s r = true -> load bs r <= tightest bs s.

  Notation apply := (apply tightest).
  Notation run := (run tightest).

  (** What it means that an entry is accepted, case by case. *)
  Inductive accepted (st : state) : entry -> state -> Prop :=
  | cap_accepted c : 0 <= c -> accepted st (Cap c)
      (State c (if is_used st || (c =? 0) then Z.max (highest_cap st) c else c) (charged st) (reserved st))
  | opening_accepted n h : is_used st = false -> 0 < n <= h -> cap st <= h ->
      accepted st (Opening n h) (State (cap st) h [Box [] n] [])
  | reserve_accepted job b : 0 < amount b -> tightest (boxes st) (scope_of b) + amount b <= cap st ->
      accepted st (Reserve job b) (State (cap st) (highest_cap st) (charged st) ((job, b) :: reserved st))
  | charge_accepted job b before after : reserved st = before ++ (job, b) :: after ->
      accepted st (Charge job b) (State (cap st) (highest_cap st) (b :: charged st) (before ++ after))
  | given_back e job b before after : e = Void job b \/ e = Expire job b ->
      reserved st = before ++ (job, b) :: after ->
      accepted st e (State (cap st) (highest_cap st) (charged st) (before ++ after)).

  Ltac by_entry H :=
    destruct H as [c C|n h U D C|job b A T|job b before after T|e job b before after [E|E] T]; subst.

  Lemma apply_accepted : forall st e st', apply st e = Some st' -> accepted st e st'.
  Proof.
    intros st e st' H.
    destruct e as [c|n h|job b|job b|job b|job b]; simpl in H;
      try (destruct (take (job, b) (reserved st)) as [rest|] eqn:T; [|discriminate];
           apply take_split in T; destruct T as [before [after [T F]]]; subst rest).
    - destruct ((cap st =? 0) || (c <? 0)) eqn:E; [discriminate|]. inversion H.
      apply orb_false_iff in E. constructor. now apply Z.ltb_ge.
    - destruct (negb (is_used st) && (0 <? n) && (n <=? h) && (cap st <=? h)) eqn:E; [|discriminate].
      inversion H.
      rewrite !andb_true_iff, negb_true_iff, Z.ltb_lt, !Z.leb_le in E. constructor; tauto.
    - destruct ((0 <? amount b) && (_ <=? cap st)) eqn:E; [|discriminate].
      inversion H. rewrite andb_true_iff, Z.ltb_lt, Z.leb_le in E. constructor; tauto.
    - inversion H. now constructor.
    - inversion H. apply given_back with job b; auto.
    - inversion H. apply given_back with job b; auto.
  Qed.

  Record sound (st : state) : Prop := Sound {
    amounts_nonnegative : nonnegative (boxes st);
    cap_below : 0 <= cap st <= highest_cap st;
    never_over : forall r, record ps r -> load (boxes st) r <= highest_cap st }.

  Lemma opened_sound : forall c, 0 <= c -> sound (opened c).
  Proof. intros c C. split; simpl; [intros b [] | lia | intros; unfold load; simpl; lia]. Qed.

  Lemma sound_parts : forall st, sound st -> nonnegative (charged st) /\ nonnegative (map snd (reserved st)).
  Proof. intros st S. apply nonnegative_app, amounts_nonnegative, S. Qed.

  (** A step changes what is charged and what is reserved by what its entry says. *)
  Lemma apply_charged : forall st e st' r, apply st e = Some st' ->
    load (charged st') r = load (charged st) r + spent_by r e.
  Proof.
    intros st e st' r H. apply apply_accepted in H. unfold load.
    by_entry H; simpl; try lia.
    apply unused in U. destruct U as [U _]. rewrite U. unfold share. simpl. lia.
  Qed.

  Lemma apply_reserved : forall st e st' r, apply st e = Some st' ->
    load (map snd (reserved st')) r = load (map snd (reserved st)) r + pending_by r e.
  Proof.
    intros st e st' r H. apply apply_accepted in H. unfold load.
    by_entry H; simpl; try lia;
      try (rewrite T, !map_app, !sum_over_app; simpl; lia).
    apply unused in U. destruct U as [_ U]. rewrite U. simpl. lia.
  Qed.

  Lemma apply_load : forall st e st' r, apply st e = Some st' ->
    load (boxes st') r = load (boxes st) r + spent_by r e + pending_by r e.
  Proof.
    intros st e st' r H. rewrite !load_boxes, (apply_charged _ _ _ r H), (apply_reserved _ _ _ r H). lia.
  Qed.

  (** An admission leaves every record of its scope within the cap in force. *)
  Lemma admitted_within_cap : forall st job b st' r, sound st -> apply st (Reserve job b) = Some st' ->
    record ps r -> covers (scope_of b) r = true -> load (boxes st') r <= cap st'.
  Proof.
    intros st job b st' r S H R C. rewrite (apply_load _ _ _ r H). apply apply_accepted in H.
    pose proof (tightest_bounds _ _ _ (amounts_nonnegative _ S) R C). simpl. unfold share. rewrite C.
    inversion H as [| |? ? A T| |? ? ? ? ? [E|E]]; subst; try discriminate. simpl. lia.
  Qed.

  Lemma apply_nonnegative : forall st e st', nonnegative (boxes st) -> apply st e = Some st' ->
    nonnegative (boxes st').
  Proof.
    intros st e st' N H. apply apply_accepted in H. unfold boxes in *.
    assert (nonnegative []) by (intros b []).
    by_entry H; try rewrite T in N; simpl;
      repeat rewrite ?map_app, ?map_cons, ?nonnegative_app, ?nonnegative_cons in *; simpl in *; intuition lia.
  Qed.

  Lemma charge_nonnegative : forall st job b before after, sound st ->
    reserved st = before ++ (job, b) :: after -> 0 <= amount b.
  Proof.
    intros st job b before after S T. apply sound_parts in S. rewrite T, map_app in S.
    simpl in S. rewrite nonnegative_app, nonnegative_cons in S. tauto.
  Qed.

  Lemma apply_sound : forall st e st', sound st -> apply st e = Some st' -> sound st'.
  Proof.
    intros st e st' S H. split.
    - exact (apply_nonnegative _ _ _ (amounts_nonnegative _ S) H).
    - apply apply_accepted in H. pose proof (cap_below _ S).
      by_entry H; simpl; try lia.
      destruct (is_used st || (c =? 0)); lia.
    - intros r R. pose proof (never_over _ S r R) as O. pose proof (cap_below _ S).
      pose proof (fun job b => admitted_within_cap st job b st' r S) as W.
      pose proof (apply_accepted _ _ _ H) as A.
      rewrite (apply_load _ _ _ r H) in *.
      by_entry A; simpl in *; try lia.
      + destruct (is_used st) eqn:U; [|rewrite load_unused by auto]; destruct (c =? 0); simpl; lia.
      + rewrite load_unused by auto. lia.
      + specialize (W job b H R). unfold share in *.
        destruct (covers (scope_of b) r); [specialize (W eq_refl)|]; lia.
      + pose proof (share_nonnegative r b (charge_nonnegative _ _ _ _ _ S T)). lia.
      + pose proof (share_nonnegative r b (charge_nonnegative _ _ _ _ _ S T)). lia.
  Qed.

  Lemma run_sound : forall es st st', sound st -> run st es = Some st' -> sound st'.
  Proof.
    induction es as [|e es IH]; intros st st' S H; [now inversion H; subst|].
    unfold Model.run in H. simpl in H. destruct (apply st e) as [mid|] eqn:E; [|discriminate].
    exact (IH _ _ (apply_sound _ _ _ S E) H).
  Qed.

  Lemma run_load : forall es st st' r, run st es = Some st' ->
    load (charged st') r = load (charged st) r + spent es r /\
    load (map snd (reserved st')) r = load (map snd (reserved st)) r + pending es r.
  Proof.
    unfold spent, pending. induction es as [|e es IH]; intros st st' r H; [inversion H; simpl; lia|].
    unfold Model.run in H. simpl in H. destruct (apply st e) as [mid|] eqn:E; [|discriminate].
    destruct (IH _ _ r H) as [C P]. simpl.
    rewrite C, P, (apply_charged _ _ _ r E), (apply_reserved _ _ _ r E). lia.
  Qed.

  Lemma spent_by_nonnegative : forall st e st' r, sound st -> apply st e = Some st' -> 0 <= spent_by r e.
  Proof.
    intros st e st' r S H. apply apply_accepted in H.
    by_entry H; simpl; try lia.
    exact (share_nonnegative r b (charge_nonnegative _ _ _ _ _ S T)).
  Qed.

  Lemma spent_nonnegative : forall es st st' r, sound st -> run st es = Some st' -> 0 <= spent es r.
  Proof.
    unfold spent. induction es as [|e es IH]; intros st st' r S H; simpl; [lia|].
    unfold Model.run in H. simpl in H. destruct (apply st e) as [mid|] eqn:E; [|discriminate].
    pose proof (IH _ _ r (apply_sound _ _ _ S E) H). pose proof (spent_by_nonnegative _ _ _ r S E). lia.
  Qed.

  Lemma highest_below : forall es st st' c, run st es = Some st' -> cap st <= c -> highest_cap st <= c ->
    highest_cap st' <= highest_of c es.
  Proof.
    assert (Base : forall es c, c <= highest_of c es)
      by (induction es; simpl; intros; [|specialize (IHes c)]; lia).
    assert (Step : forall es c z, highest_of (Z.max z c) es = Z.max z (highest_of c es))
      by (induction es; simpl; intros; [lia | rewrite IHes; lia]).
    induction es as [|e es IH]; intros st st' most H F G; [inversion H; subst; simpl; lia|].
    unfold Model.run in H. simpl in H. destruct (apply st e) as [mid|] eqn:E; [|discriminate].
    simpl. rewrite <- Step. apply apply_accepted in E. apply (IH mid st'); auto;
      by_entry E; simpl; try lia.
    destruct (is_used st || (c =? 0)); lia.
  Qed.

  (** A list of entries that was written has a sound state at every prefix. *)
  Lemma at_prefix : forall c p q st, 0 <= c -> run (opened c) (p ++ q) = Some st ->
    exists mid, run (opened c) p = Some mid /\ run mid q = Some st /\ sound mid.
  Proof.
    intros c p q st C H. destruct (follow_app _ _ _ _ _ _ _ H) as [mid [P Q]]. exists mid. split; [exact P|].
    split; [exact Q|]. exact (run_sound _ _ _ (opened_sound c C) P).
  Qed.

  Theorem never_overdrawn : forall c es st, 0 <= c -> run (opened c) es = Some st ->
    forall p q, es = p ++ q -> forall r, record ps r ->
      0 <= spent p r /\ 0 <= pending p r /\
      spent p r + pending p r <= highest_of c p /\ spent p r <= spent es r.
  Proof.
    intros c es st C H p q E r R. subst es. destruct (at_prefix _ _ _ _ C H) as [mid [P [Q S]]].
    destruct (run_load _ _ _ r P) as [A B]. destruct (sound_parts _ S) as [N M].
    pose proof (highest_below _ _ _ c P (Z.le_refl c) (Z.le_refl c)). pose proof (never_over _ S r R) as O.
    rewrite load_boxes in O. pose proof (load_nonnegative _ r N). pose proof (load_nonnegative _ r M).
    pose proof (spent_nonnegative _ _ _ r S Q). unfold spent at 4. rewrite sum_over_app. unfold load in *.
    simpl in *. unfold spent, pending in *. lia.
  Qed.
End Account.
