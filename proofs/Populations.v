(** * Several datasets about the same people, under one more cap. They join late, are erased and continued.

    The loads that members carry bound the loss of every person, and stay within the highest cap. *)

Require Import ZArith List Lia Bool Arith.
Require Import Model Maxima Scopes Ledger.
Import ListNotations.
Open Scope Z_scope.

Lemma is_in_false : forall v l, is_in v l = false <-> ~ In v l.
Proof. intros v l. rewrite <- is_in_spec. now destruct (is_in v l). Qed.

Lemma sum_over_put : forall f i v l, NoDup l -> In i l -> sum_over (put f i v) l = sum_over f l - f i + v.
Proof.
  intros f i v l N I. apply in_split in I. destruct I as [before [after E]]. subst.
  apply NoDup_remove in N. destruct N as [_ N]. rewrite in_app_iff in N. rewrite !sum_over_app. simpl.
  rewrite put_same.
  rewrite (sum_over_ext (put f i v) f before), (sum_over_ext (put f i v) f after); [lia| |];
    intros k K; apply put_other; intro; subst; tauto.
Qed.

Lemma sum_over_put_absent : forall f i v l, ~ In i l -> sum_over (put f i v) l = sum_over f l.
Proof. intros f i v l N. apply sum_over_ext. intros k K. apply put_other. congruence. Qed.

Lemma sum_over_remove : forall f j l, NoDup l -> In j l ->
  sum_over f l = f j + sum_over f (remove Nat.eq_dec j l).
Proof.
  induction l as [|k l IH]; simpl; intros N I; [contradiction|]. inversion N; subst.
  destruct (Nat.eq_dec j k) as [E|E]; [subst; now rewrite notin_remove|].
  destruct I as [I|I]; [congruence|]. simpl. rewrite IH by auto. lia.
Qed.

Lemma remove_distinct : forall j l, NoDup l -> NoDup (remove Nat.eq_dec j l).
Proof.
  induction l as [|k l IH]; simpl; intro N; [exact N|]. inversion N; subst.
  destruct (Nat.eq_dec j k); [auto|]. constructor; [|auto]. intro I. apply in_remove in I. tauto.
Qed.

Lemma sum_over_flat_map : forall A B (f : B -> Z) (g : A -> list B) l,
  sum_over f (flat_map g l) = sum_over (fun x => sum_over f (g x)) l.
Proof. induction l; simpl; [reflexivity|]. now rewrite sum_over_app, IHl. Qed.

Lemma charged_stay : forall tightest st e st', apply tightest st e = Some st' ->
  incl (charged st) (charged st').
Proof.
  intros tightest st e st' H. apply apply_accepted in H.
  destruct H as [c C|n h U D C|job b A T|job b before after T|e job b before after E T]; simpl;
    try apply incl_refl; [|intros x X; now right].
  apply unused in U. destruct U as [U _]. rewrite U. intros x [].
Qed.

Section Population.
  Variable partitions : nat -> list partition.
  Variable tightest : list partition -> list box -> scope -> Z.
  Variable is_pure : bool.
  Hypothesis tightest_bounds : forall ps bs s r,
    nonnegative bs -> record ps r -> covers s r = true -> load bs r <= tightest ps bs s.
  Hypothesis some_record : forall i, exists r, record (partitions i) r.

  Notation step := (step partitions tightest is_pure).
  Notation history := (history partitions tightest is_pure).
  Notation person := (person partitions).

  Record sound_world (w : world) : Prop := SoundWorld {
    accounts : forall i, sound (partitions i) (account w i);
    distinct : NoDup (members w);
    still_open : forall i, In i (members w) -> ~ In i (closed w);
    carries : forall i, In i (members w) -> 0 <= inherited w i <= carried w i /\
      forall r, record (partitions i) r -> load (boxes (account w i)) r <= carried w i;
    took_over : forall i, inherited w i = 0 \/ In (Box [] (inherited w i)) (charged (account w i));
    fresh : forall i, ~ In i (members w) -> ~ In i (closed w) -> inherited w i = 0 /\ predecessors w i = [];
    before : forall i, In i (members w) -> (forall k, In k (predecessors w i) -> In k (closed w)) /\
      forall p, person p -> sum_over (own_loss w p) (predecessors w i) <= inherited w i;
    population_cap_below : 0 <= population_cap w <= population_highest w;
    below : is_pure = false -> together w <= population_highest w }.

  Lemma opened_world_sound : forall caps c, (forall i, 0 <= caps i) -> 0 <= c ->
    sound_world (opened_world caps c).
  Proof.
    intros caps c C D. split; simpl; auto; try (intros i []; fail); try lia.
    - intro i. apply opened_sound, C.
    - constructor.
  Qed.

  (** The carried loads bound the loss of every person: what a population may print at any time. *)
  Theorem loss_below_together : forall w p, sound_world w -> person p -> loss w p <= together w.
  Proof.
    intros w p S P. unfold loss, counted. rewrite sum_over_flat_map. apply sum_over_le. intros i I. simpl.
    destruct (carries _ S i I) as [N C]. destruct (before _ S i I) as [_ B]. specialize (B p P).
    unfold own_loss at 1. destruct (p i) as [r|] eqn:E; [specialize (C r (P i r E))|]; lia.
  Qed.

  Lemma together_below_printed : forall w, sound_world w -> together w <= printed is_pure w.
  Proof. intros w S. pose proof (below _ S). unfold printed. destruct is_pure; [lia | auto]. Qed.

  (** What an account took over counts in every cell. *)
  Lemma everywhere : forall i st n, sound (partitions i) st -> n = 0 \/ In (Box [] n) (charged st) ->
    n <= tightest (partitions i) (boxes st) [].
  Proof.
    intros i st n S I. destruct (some_record i) as [r R].
    pose proof (tightest_bounds _ _ [] r (amounts_nonnegative _ _ S) R eq_refl) as T. rewrite load_boxes in T.
    destruct (sound_parts _ _ S) as [N M]. pose proof (load_nonnegative _ r N).
    pose proof (load_nonnegative _ r M).
    destruct I as [I|I]; [lia|]. pose proof (share_le_load _ _ r N I) as L. unfold share in L. simpl in L.
    lia.
  Qed.

  (** Accounts that nothing is written on any more keep what they cost. *)
  Lemma own_losses_kept : forall w w' p l,
    (forall k, In k l -> account w' k = account w k /\ inherited w' k = inherited w k) ->
    sum_over (own_loss w' p) l = sum_over (own_loss w p) l.
  Proof.
    intros w w' p l H. apply sum_over_ext. intros k K. destruct (H k K) as [A B]. unfold own_loss.
    now rewrite A, B.
  Qed.

  Ltac at_index k i := destruct (Nat.eq_dec k i) as [?|?];
    [subst k; rewrite ?put_same in * | rewrite ?put_other in * by assumption].

  Lemma with_account_sound : forall w i st' c, sound_world w -> sound (partitions i) st' ->
    ~ In i (closed w) ->
    incl (charged (account w i)) (charged st') ->
    (In i (members w) -> inherited w i <= c /\
       (is_pure = false -> together w - carried w i + c <= population_highest w) /\
       forall r, record (partitions i) r -> load (boxes st') r <= c) ->
    sound_world (with_account w i st' c).
  Proof.
    intros w i st' c S N O G C. destruct S as [A D X K U V J P B]. split; simpl; auto.
    - intro k. at_index k i; auto.
    - intros k I. destruct (K k I) as [K1 K2]. at_index k i; [|auto]. destruct (C I) as [C1 [_ C2]].
      split; [lia | auto].
    - intro k. at_index k i; [|auto]. destruct (U i); auto.
    - intros k I. destruct (J k I) as [J1 J2]. split; [exact J1|]. intros p Q.
      rewrite (own_losses_kept w); [auto|].
      intros m M. simpl. split; [|reflexivity]. apply put_other. intro. subst. exact (O (J1 _ M)).
    - intro Y. specialize (B Y). unfold together. simpl. destruct (in_dec Nat.eq_dec i (members w)) as [I|I].
      + rewrite sum_over_put by auto. destruct (C I) as [_ [C1 _]]. specialize (C1 Y). unfold together in C1.
        lia.
      + rewrite sum_over_put_absent by auto. exact B.
  Qed.

  (** What a member carries after an entry covers what its account took over and every record, and fits. *)
  Lemma carried_after_covers : forall w i e st' c, sound_world w -> In i (members w) ->
    apply (tightest (partitions i)) (account w i) e = Some st' ->
    carried_after partitions tightest w i (account w i) st' e = Some c ->
    inherited w i <= c /\ (is_pure = false -> together w - carried w i + c <= population_highest w) /\
    forall r, record (partitions i) r -> load (boxes st') r <= c.
  Proof.
    intros w i e st' c S I H F. pose proof (accounts _ S i) as Si. destruct (carries _ S i I) as [N C].
    pose proof (apply_sound _ _ (tightest_bounds (partitions i)) _ _ _ Si H) as S'.
    pose proof (below _ S) as B. pose proof (population_cap_below _ S) as PB.
    assert (W : inherited w i <= tightest (partitions i) (boxes st') []).
    { apply everywhere; [exact S'|]. destruct (took_over _ S i) as [T|T]; [now left | right].
      exact (charged_stay _ _ _ _ H _ T). }
    assert (Kept : forall job b, e = Charge job b \/ e = Void job b \/ e = Expire job b ->
      forall r, record (partitions i) r -> load (boxes st') r <= carried w i).
    { intros job b E r R. specialize (C r R). rewrite (apply_load _ _ _ _ r H).
      pose proof (apply_accepted _ _ _ _ H) as Acc.
      destruct E as [E|[E|E]]; subst e; simpl; [lia | |];
        inversion Acc as [| | | |? ? ? ? ? [E|E] T]; inversion E; subst;
        pose proof (share_nonnegative r _ (charge_nonnegative _ _ _ _ _ _ Si T)); lia. }
    assert (Whole : forall r, record (partitions i) r ->
      load (boxes st') r <= tightest (partitions i) (boxes st') []).
    { intros r R. exact (tightest_bounds _ _ [] r (amounts_nonnegative _ _ S') R eq_refl). }
    destruct e as [d|n h|job b|job b|job b|job b]; simpl in F; try discriminate; try (injection F as F;
      subst c).
    - split; [lia|]. split; [intro Y; specialize (B Y); lia|]. intros r R.
      rewrite (apply_load _ _ _ _ r H). simpl. specialize (C r R). lia.
    - destruct ((together w <=? population_cap w) && _) eqn:Q; [|discriminate]. injection F as F. subst c.
      rewrite andb_true_iff, !Z.leb_le in Q. split; [lia|]. split; [intro Y; specialize (B Y); lia|].
      intros r R. specialize (Whole r R).
      apply Z.min_glb; [exact Whole|]. rewrite (apply_load _ _ _ _ r H). simpl. unfold share.
      specialize (C r R).
      destruct (covers (scope_of b) r) eqn:V; [|lia].
      pose proof (tightest_bounds _ _ _ r (amounts_nonnegative _ _ Si) R V). lia.
    - split; [lia|]. split; [intro Y; specialize (B Y); lia|]. apply (Kept job b). auto.
    - split; [lia|]. split; [intro Y; specialize (B Y); lia|]. intros r R. specialize (Kept job b).
      specialize (Whole r R).
      apply Z.min_glb; auto.
    - split; [lia|]. split; [intro Y; specialize (B Y); lia|]. intros r R. specialize (Kept job b).
      specialize (Whole r R).
      apply Z.min_glb; auto.
  Qed.

  Lemma own_step : forall w i e w', step w (Own i e) = Some w' ->
    ~ In i (closed w) /\ exists st' c, apply (tightest (partitions i)) (account w i) e = Some st' /\
      w' = with_account w i st' c /\
      (In i (members w) -> carried_after partitions tightest w i (account w i) st' e = Some c).
  Proof.
    intros w i e w' H. simpl in H. destruct (is_in i (closed w)) eqn:O; [discriminate|].
    split; [now apply is_in_false|]. destruct (apply _ (account w i) e) as [st'|]; [|discriminate].
    unfold is_member in H. destruct (is_in i (members w)) eqn:M.
    - destruct (carried_after _ _ w i _ st' e) as [c|] eqn:F; [|discriminate]. inversion H. exists st', c.
      auto.
    - inversion H. exists st', (carried w i). apply is_in_false in M. repeat split; auto. contradiction.
  Qed.

  Lemma join_sound : forall w i w', sound_world w -> step w (Join i) = Some w' -> sound_world w'.
  Proof.
    intros w i w' S H. cbn [Model.step] in H. set (carries := Z.min _ _) in H.
    destruct (is_member w i || is_in i (closed w)) eqn:M; [discriminate|]. injection H as H. subst w'.
    apply orb_false_iff in M. unfold is_member in M. rewrite !is_in_false in M. destruct M as [NI NC].
    pose proof (accounts _ S i) as Si. pose proof (cap_below _ _ Si) as CB.
    pose proof (everywhere i _ 0 Si (or_introl eq_refl)) as T0.
    destruct (fresh _ S i NI NC) as [I0 P0]. destruct S as [A D X K U V J P B].
    assert (C0 : 0 <= carries) by lia.
    split; simpl; auto.
    - now constructor.
    - intros k [E|I]; [now subst | auto].
    - intros k I. at_index k i; [|destruct I; [congruence | auto]]. rewrite I0. split; [lia|]. intros r R.
      pose proof (tightest_bounds _ _ [] r (amounts_nonnegative _ _ Si) R eq_refl).
      pose proof (never_over _ _ Si r R).
      lia.
    - intros k [E|I]; [|apply J, I]. subst k. rewrite P0, I0. split; [intros k []|]. intros p _. simpl. lia.
    - destruct (is_pure || (carries <=? 0)); lia.
    - intro Y. specialize (B Y). rewrite Y. unfold together in *. simpl.
      rewrite put_same, sum_over_put_absent by exact NI. destruct (Z.leb_spec carries 0); lia.
  Qed.

  Lemma continue_sound : forall w i j h w', sound_world w -> step w (Continue i j h) = Some w' ->
    sound_world w'.
  Proof.
    intros w i j h w' S H. cbn [Model.step] in H.
    set (ends := match reserved (account w j) with [] => is_member w j | _ => false end) in H.
    destruct (negb ends || is_member w i || is_in i (closed w)) eqn:M; [discriminate|].
    rewrite !orb_false_iff, negb_false_iff in M. destruct M as [[E NI] NC].
    destruct (apply _ (account w i) _) as [st'|] eqn:Ap; [|discriminate]. injection H as H.
    unfold is_member in NI. rewrite is_in_false in NI, NC.
    assert (Mj : In j (members w)).
    { apply is_in_spec. unfold ends in E. destruct (reserved (account w j)); [exact E | discriminate]. }
    pose proof (accounts _ S i) as Si.
    pose proof (apply_sound _ _ (tightest_bounds (partitions i)) _ _ _ Si Ap) as S'.
    assert (St : charged st' = [Box [] (carried w j)] /\ boxes st' = [Box [] (carried w j)]).
    { apply apply_accepted in Ap. inversion Ap as [| | | |? ? ? ? ? [F|F]]; try discriminate. now split. }
    destruct St as [Ch Bo]. destruct S as [A D X K U V J P B].
    destruct (K j Mj) as [N0 C]. destruct (J j Mj) as [J0 J1].
    assert (Rest : forall k, In k (remove Nat.eq_dec j (members w)) -> In k (members w) /\ k <> j /\ k <> i).
    { intros k I. apply in_remove in I. destruct I as [I Ne]. repeat split; auto. congruence. }
    assert (Keep : forall p l, (forall k, In k l -> k <> i) ->
      sum_over (own_loss w' p) l = sum_over (own_loss w p) l).
    { intros p l F. apply own_losses_kept. intros k I. subst w'. simpl. rewrite !put_other; auto. }
    subst w'. split; simpl; auto.
    - intro k. at_index k i; auto.
    - constructor; [intro I; apply Rest in I; tauto | now apply remove_distinct].
    - intros k [F|I] [G|G]; subst; auto; apply Rest in I; destruct I as [I [Ne _]]; [congruence|].
      exact (X _ I G).
    - intros k [F|I].
      + subst k. rewrite !put_same. split; [lia|]. intros r R. rewrite Bo. unfold load. simpl. unfold share.
        simpl. lia.
      + destruct (Rest k I) as [I1 [_ I2]]. rewrite !put_other by exact I2. auto.
    - intro k. at_index k i; [|auto]. rewrite Ch. right. now left.
    - intros k I O. rewrite !put_other by (intro; subst; tauto). apply V; [|tauto]. intro F. apply I. right.
      apply in_in_remove; [|exact F]. intro. subst. tauto.
    - intros k [F|I].
      + subst k. rewrite !put_same. split; [intros m [F|F]; [now left | right; auto]|].
        intros p Q. rewrite Keep.
        * simpl. specialize (J1 p Q). unfold own_loss at 1.
          destruct (p j) as [r|] eqn:F; [specialize (C r (Q j r F))|]; lia.
        * intros m [F|F]; [|intro; subst; exact (NC (J0 _ F))]. congruence.
      + destruct (Rest k I) as [I1 [_ I2]]. rewrite !put_other by exact I2. destruct (J k I1) as [L0 L1].
        split; [intros m F; right; auto|]. intros p Q. rewrite Keep; [auto|].
        intros m F. intro. subst. exact (NC (L0 _ F)).
    - intro Y. specialize (B Y). unfold together in *. simpl. rewrite put_same, sum_over_put_absent.
      + rewrite (sum_over_remove _ j) in B by auto. lia.
      + intro I. apply Rest in I. tauto.
  Qed.

  Theorem step_sound : forall w a w', sound_world w -> step w a = Some w' -> sound_world w'.
  Proof.
    intros w a w' S H. destruct a as [i e|i|i j h|c].
    - destruct (own_step _ _ _ _ H) as [O [st' [c [Ap [E F]]]]]. subst w'. apply with_account_sound; auto.
      + exact (apply_sound _ _ (tightest_bounds (partitions i)) _ _ _ (accounts _ S i) Ap).
      + exact (charged_stay _ _ _ _ Ap).
      + intro I. exact (carried_after_covers _ _ _ _ _ S I Ap (F I)).
    - exact (join_sound _ _ _ S H).
    - exact (continue_sound _ _ _ _ _ S H).
    - cbn [Model.step] in H. destruct ((population_cap w =? 0) || (c <? 0)) eqn:Q; [discriminate|].
      injection H as H. subst w'. apply orb_false_iff in Q. destruct Q as [_ Q]. apply Z.ltb_ge in Q.
      destruct S as [A D X K U V J P B]. unfold together in *.
      split; simpl; auto; try (intro Y; specialize (B Y)); unfold together; simpl;
        destruct (Z.ltb_spec 0 (sum_over (carried w) (members w))); simpl;
        destruct (c =? 0); lia.
  Qed.

  Lemma history_sound : forall acts w w', sound_world w -> history w acts = Some w' -> sound_world w'.
  Proof.
    unfold Model.history. induction acts as [|a acts IH]; simpl; intros w w' S H; [now inversion H; subst|].
    destruct (step w a) as [mid|] eqn:E; [|discriminate]. exact (IH _ _ (step_sound _ _ _ S E) H).
  Qed.

  Theorem population_never_overdrawn : forall w, sound_world w ->
    (forall p, person p -> loss w p <= together w <= printed is_pure w) /\
    (forall i r, record (partitions i) r -> load (boxes (account w i)) r <= highest_cap (account w i)).
  Proof.
    intros w S. split.
    - intros p P. split; [now apply loss_below_together | now apply together_below_printed].
    - intros i. exact (never_over _ _ (accounts _ S i)).
  Qed.

  (** After an admission in a member, every person is within the population's cap in force. *)
  Theorem admitted_within_population_cap : forall w, sound_world w -> forall i job b w' p, In i (members w) ->
    step w (Own i (Reserve job b)) = Some w' -> person p -> loss w' p <= population_cap w'.
  Proof.
    intros w S i job b w' p M H P. apply Z.le_trans with (together w').
    - apply loss_below_together; [exact (step_sound _ _ _ S H) | exact P].
    - destruct (own_step _ _ _ _ H) as [O [st' [c [Ap [E F]]]]]. subst w'. specialize (F M). simpl in F.
      destruct ((together w <=? population_cap w) && _) eqn:Q; [|discriminate]. injection F as F. subst c.
      rewrite andb_true_iff, !Z.leb_le in Q. unfold together in *. simpl.
      rewrite sum_over_put by (auto; apply S). lia.
  Qed.
End Population.
