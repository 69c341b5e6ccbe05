(** * The ledger is a privacy filter in ρ, too, for jobs with finitely many outcomes of positive chance.

    The argument is that of Theorem L (b), made once for whatever decides about requests: the moment of the
    laws of all transcripts grows by no more than what the unit is charged ([moment_is_bounded]). *)

Require Import ZArith List Lia Bool Reals Lra.
Require Import Model Jobs Maxima Scopes Chances Ledger Populations Filter People TheoremL.
Import ListNotations.
Open Scope R_scope.

Section Transcripts.
  Context {state request data outcome : Type} (advance : state -> request -> option state).
  Variable outcomes : list outcome.
  Notation strategy := (@strategy request data outcome).
  Notation possible := (possible advance outcomes).
  Notation transcripts_of := (transcripts_of advance outcomes).
  Notation moment_of := (moment_of advance outcomes).

  Lemma sum_of_map : forall A B (f : B -> R) (g : A -> B) l,
    sum_of f (map g l) = sum_of (fun x => f (g x)) l.
  Proof. induction l as [|x l IH]; simpl; [reflexivity|]. now rewrite IH. Qed.

  Lemma sum_of_flat_map : forall A B (f : B -> R) (g : A -> list B) l,
    sum_of f (flat_map g l) = sum_of (fun x => sum_of f (g x)) l.
  Proof. induction l as [|x l IH]; simpl; [reflexivity|]. now rewrite sum_of_app, IH. Qed.

  Variable alpha : R.
  Variable fine : state -> Prop.
  Variable lost : state -> R.            (** what the unit has lost in a state *)
  Variables d d' : data.
  Variable s : strategy.

  Hypothesis order_nonnegative : 0 <= order alpha.
  Hypothesis fine_and_growing : forall st q st', fine st -> advance st q = Some st' -> fine st' /\
    lost st <= lost st'.
  Hypothesis positive : forall h q law, s h = Start q law -> forall o, 0 < law d o /\ 0 < law d' o.
  Hypothesis charged_first : forall h q law st st', s h = Start q law -> fine st ->
    advance st q = Some st' ->
    sum_of (fun o => kernel alpha (law d o) (law d' o)) outcomes <= exp (order alpha * (lost st' - lost st)).

  Lemma event_is_possible : forall st h ev, In ev (possible st (s h)) ->
    0 < chance_of_event advance st (s h) d ev /\ 0 < chance_of_event advance st (s h) d' ev.
  Proof.
    intros st h ev I. unfold possible in I. unfold chance_of_event.
    destruct (s h) as [q|q law] eqn:E; destruct (advance st _).
    - destruct I as [I|[]]. subst. lra.
    - destruct I as [I|[]]. subst. lra.
    - apply in_map_iff in I. destruct I as [o [I _]]. subst. exact (positive _ _ _ E o).
    - destruct I as [I|[]]. subst. lra.
  Qed.

  Lemma chance_is_positive : forall n st h w, In w (transcripts_of s st h n) ->
    0 < chance advance s st h d w /\ 0 < chance advance s st h d' w.
  Proof.
    induction n as [|n IH]; intros st h w I; cbn [transcripts_of] in I.
    - destruct I as [I|[]]. subst. simpl. lra.
    - apply in_flat_map in I. destruct I as [ev [E I]]. apply in_map_iff in I. destruct I as [v [V I]]. subst w.
      destruct (event_is_possible _ _ _ E). destruct (IH _ _ _ I). cbn [chance].
      split; now apply Rmult_lt_0_compat.
  Qed.

  Lemma moment_by_event : forall n st h, moment_of alpha s st h d d' (S n) =
    sum_of (fun ev => kernel alpha (chance_of_event advance st (s h) d ev)
                                   (chance_of_event advance st (s h) d' ev)
                      * moment_of alpha s (next advance st (s h)) (h ++ [ev]) d d' n) (possible st (s h)).
  Proof.
    intros n st h. unfold moment_of. cbn [transcripts_of]. rewrite sum_of_flat_map. apply sum_of_ext.
    intros ev E. rewrite sum_of_map, Rmult_comm, <- sum_of_scale. apply sum_of_ext. intros w I.
    destruct (event_is_possible _ _ _ E). destruct (chance_is_positive _ _ _ _ I). cbn [chance].
    rewrite kernel_product by assumption. apply Rmult_comm.
  Qed.

  Lemma events_cost_what_is_charged : forall st h, fine st ->
    sum_of (fun ev => kernel alpha (chance_of_event advance st (s h) d ev)
                                   (chance_of_event advance st (s h) d' ev)) (possible st (s h))
    <= exp (order alpha * (lost (next advance st (s h)) - lost st)).
  Proof.
    intros st h F. destruct (next_is_fine advance fine lost fine_and_growing st (s h) F) as [_ G].
    assert (One : kernel alpha 1 1 + 0 <= exp (order alpha * (lost (next advance st (s h)) - lost st))).
    { rewrite kernel_same, Rplus_0_r, <- exp_0 by lra. apply exp_le. apply Rmult_le_pos; lra. }
    unfold possible, chance_of_event. unfold next in *.
    destruct (s h) as [q|q law] eqn:E; cbn [asked] in *; destruct (advance st q) as [st'|] eqn:A;
      try (simpl sum_of; exact One).
    rewrite sum_of_map. exact (charged_first _ _ _ _ _ E F A).
  Qed.

  (** If no transcript leads to more than [b], the moment is that of [b]. *)
  Theorem moment_is_bounded : forall n st h b, fine st ->
    (forall w, In w (transcripts_of s st h n) -> lost (reached advance s st h w) <= b) ->
    moment_of alpha s st h d d' n <= exp (order alpha * (b - lost st)).
  Proof.
    induction n as [|n IH]; intros st h b F B.
    - specialize (B [] (or_introl eq_refl)). simpl in B. unfold moment_of. simpl.
      rewrite kernel_same, Rplus_0_r, <- exp_0 by lra. apply exp_le. apply Rmult_le_pos; lra.
    - rewrite moment_by_event. set (mid := next advance st (s h)).
      apply Rle_trans with (exp (order alpha * (lost mid - lost st)) * exp (order alpha * (b - lost mid))).
      + eapply Rle_trans; [|apply Rmult_le_compat_r; [left; apply exp_pos |
          exact (events_cost_what_is_charged st h F)]].
        rewrite <- sum_of_scale. apply sum_of_le. intros ev E.
        apply Rmult_le_compat_l; [left; apply kernel_positive|]. apply IH.
        * exact (proj1 (next_is_fine advance fine lost fine_and_growing st (s h) F)).
        * intros w I. apply (B (ev :: w)). cbn [transcripts_of]. apply in_flat_map. exists ev.
          split; [exact E | now apply in_map].
      + rewrite <- exp_plus. right. f_equal. ring.
  Qed.
End Transcripts.

(** ** Jobs *)

Section CostsOfJobs.
  Context {row outcome : Type} (outcomes : list outcome) (alpha unit : R).
  Notation zcdp_job := (@zcdp_job row outcome outcomes alpha unit).

  Lemma zcdp_job_costs : forall k cell_of b m, 0 <= order alpha -> (0 < k)%nat -> zcdp_job k cell_of b m ->
    forall xs d d', (length xs <= k)%nat -> added xs d d' ->
    sum_of (fun o => kernel alpha (m d o) (m d' o)) outcomes <=
    exp (order alpha * (unit / INR k * IZR (sum_over (fun x => share (cell_of x) b) xs))).
  Proof.
    intros k cell_of b m O K [e [rule [E [P [_ [_ [C R]]]]]]] xs d d' L A.
    set (reads := fun x => covers (scope_of b) (cell_of x)).
    assert (F : (length (filter reads xs) <= k)%nat).
    { apply Nat.le_trans with (2 := L). clear. induction xs as [|x xs IH]; simpl; [lia|].
      destruct (reads x); simpl; lia. }
    rewrite (sum_of_ext _ (fun o => kernel alpha (rule (filter reads d) o) (rule (filter reads d') o)))
      by (intros o _; now rewrite !R).
    apply Rle_trans with (1 := C _ _ _ F (filter_added _ reads _ _ _ A)). apply exp_le.
    apply Rmult_le_compat_l; [exact O|]. rewrite shares_by_reads. fold reads.
    rewrite mult_IZR, <- INR_IZR_INZ. apply le_INR in F. apply lt_0_INR in K. set (n := INR (length _)) in *.
    assert (N : 0 <= n) by apply pos_INR. apply (Rmult_le_reg_l (INR k)); [exact K|].
    replace (INR k * (unit / INR k * (n * IZR (amount b)))) with (n * (unit * IZR (amount b))) by (field; lra).
    apply Rle_trans with (n * (INR k * INR k * e)); [|now apply Rmult_le_compat_l].
    replace (INR k * (n * n * e)) with (n * (INR k * n * e)) by ring.
    apply Rmult_le_compat_l; [exact N|]. apply Rmult_le_compat_r; [exact E|].
    apply Rmult_le_compat_l; lra.
  Qed.

  Lemma zcdp_job_positive : forall k cell_of b m, zcdp_job k cell_of b m -> forall d o, 0 < m d o.
  Proof. intros k cell_of b m [e [rule [_ [_ [P [_ [_ R]]]]]]] d o. now rewrite R. Qed.
End CostsOfJobs.

(** ** The ledger *)

Theorem ledger_filter_in_rho : forall ps tightest, (forall bs s r,
    nonnegative bs -> record ps r -> covers s r = true -> (load bs r <= tightest bs s)%Z) ->
  forall row outcome (outcomes : list outcome) alpha (cell_of : row -> joint_cell) unit k,
  (forall x, record ps (cell_of x)) -> 0 <= unit -> (0 < k)%nat -> 0 <= order alpha ->
  forall s, zcdp_jobs outcomes alpha unit k cell_of s ->
  forall c xs d d' highest n, (0 <= c)%Z -> (length xs <= k)%nat -> added xs d d' ->
  let advance := apply tightest in
  (forall w, In w (transcripts_of advance outcomes s (opened c) [] n) ->
     (highest_cap (reached advance s (opened c) [] w) <= highest)%Z) ->
  moment_of advance outcomes alpha s (opened c) [] d d' n <= exp (order alpha * (unit * IZR highest)).
Proof.
  intros ps tightest Top row outcome outcomes alpha cell_of unit k Rec U K O s J c xs d d' highest n C L A
    advance Below.
  set (charges := fun st => sum_over (fun x => load (charged st) (cell_of x)) xs).
  set (lost := fun st => unit / INR k * IZR (charges st)).
  assert (Grow : forall st q st', sound ps st -> advance st q = Some st' ->
    sound ps st' /\ lost st <= lost st').
  { intros st q st' S H. split; [exact (apply_sound ps _ Top _ _ _ S H)|].
    apply Rmult_le_compat_l; [now apply weight_nonnegative|]. apply IZR_le, sum_over_le. intros x _.
    rewrite (apply_charged _ _ _ _ (cell_of x) H).
    pose proof (spent_by_nonnegative _ _ _ _ _ (cell_of x) S H). lia. }
  replace (unit * IZR highest) with (unit * IZR highest - lost (opened c)).
  2: { unfold lost, charges, load. simpl. rewrite sum_over_constant, Z.mul_0_r. ring. }
  apply (moment_is_bounded advance outcomes alpha (sound ps) lost d d' s O Grow).
  - intros h q law E o. destruct (J _ _ _ E) as [job [b [_ Z]]].
    split; exact (zcdp_job_positive _ _ _ _ _ _ _ Z _ _).
  - intros h q law st st' E S H. destruct (J _ _ _ E) as [job [b [Q Z]]]. subst q.
    replace (lost st' - lost st) with (unit / INR k * IZR (sum_over (fun x => share (cell_of x) b) xs)).
    + exact (zcdp_job_costs _ _ _ _ _ _ _ O K Z _ _ _ L A).
    + unfold lost, charges. rewrite (charges_grow tightest cell_of xs _ _ _ H), plus_IZR. simpl. ring.
  - now apply opened_sound.
  - intros w I. specialize (Below w I).
    pose proof (reached_is_fine advance (sound ps) lost s Grow w [] _ (opened_sound ps c C)) as S.
    pose proof (cap_below _ _ S). apply mean_below; auto; [lia|]. intros x _.
    pose proof (never_over _ _ S _ (Rec x)) as N. rewrite load_boxes in N.
    pose proof (load_nonnegative _ (cell_of x) (proj2 (sound_parts _ _ S))). lia.
Qed.

(** ** A population *)

Theorem population_filter_in_rho : forall partitions tightest is_pure, (forall ps bs s r,
    nonnegative bs -> record ps r -> covers s r = true -> (load bs r <= tightest ps bs s)%Z) ->
  (forall i, exists r, record (partitions i) r) ->
  forall row outcome (outcomes : list outcome) alpha (cell_of : nat -> row -> joint_cell) unit k,
  (forall i x, record (partitions i) (cell_of i x)) -> 0 <= unit -> (forall i, (0 < k i)%nat) ->
  0 <= order alpha -> forall s, zcdp_in_world outcomes alpha unit k cell_of s ->
  forall (xs : nat -> list row) datasets, NoDup datasets -> (forall i, xs i <> [] -> In i datasets) ->
  (forall i, (length (xs i) <= k i)%nat) -> forall caps c d d' highest n,
  (forall i, (0 <= caps i)%Z) -> (0 <= c)%Z -> (forall i, added (xs i) (d i) (d' i)) ->
  let advance := step partitions tightest is_pure in let start := opened_world caps c in
  (forall w, In w (transcripts_of advance outcomes s start [] n) ->
     let final := reached advance s start [] w in
     incl datasets (counted final) /\ (printed is_pure final <= highest)%Z) ->
  moment_of advance outcomes alpha s start [] d d' n <= exp (order alpha * (unit * IZR highest)).
Proof.
  intros partitions tightest is_pure Top Some_r row outcome outcomes alpha cell_of unit k Rec U K O s J xs
    datasets N In_d L caps c d d' highest n Caps C A advance start Below.
  set (lost := fun w => sum_of (mean cell_of unit k xs w) datasets).
  assert (Grow : forall st q st', sound_world partitions is_pure st -> advance st q = Some st' ->
    sound_world partitions is_pure st' /\ lost st <= lost st').
  { intros v a v' S H. split; [exact (step_sound _ _ _ Top Some_r _ _ _ S H)|].
    apply sum_of_le. intros i _. eapply mean_grows; eauto. }
  pose proof (opened_world_sound partitions is_pure caps c Caps C) as Start_sound.
  replace (unit * IZR highest) with (unit * IZR highest - lost start).
  2: { unfold lost. rewrite (sum_of_ext _ (fun _ => 0 * 0)); [rewrite sum_of_scale; ring|]. intros i _.
       unfold mean, own_charged. simpl. unfold load. simpl. rewrite sum_over_constant, Z.mul_0_r. ring. }
  apply (moment_is_bounded advance outcomes alpha (sound_world partitions is_pure) lost d d' s O Grow).
  - intros h q law E o. destruct (J _ _ _ E) as [i [job [b [own [_ [Z M]]]]]]. rewrite !M.
    split; exact (zcdp_job_positive _ _ _ _ _ _ _ Z _ _).
  - intros h q law v v' E S H. destruct (J _ _ _ E) as [i [job [b [own [Q [Z M]]]]]]. subst q.
    rewrite (sum_of_ext _ (fun o => kernel alpha (own (d i) o) (own (d' i) o))) by (intros; now rewrite !M).
    unfold lost. erewrite mean_by_charge; eauto.
    exact (zcdp_job_costs _ _ _ _ _ _ _ O (K i) Z _ _ _ (L i) (A i)).
  - exact Start_sound.
  - intros w I. destruct (Below w I) as [Inc B].
    pose proof (reached_is_fine advance _ lost s Grow w [] _ Start_sound) as S.
    eapply Rle_trans; [eapply means_below_printed; eauto|]. apply Rmult_le_compat_l; [exact U | now apply IZR_le].
Qed.
