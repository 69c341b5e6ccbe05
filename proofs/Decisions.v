(** * What an admission decides, and that the ways round the search for the largest load decide the same. *)

Require Import ZArith List Lia Bool Arith.
Require Import Model Maxima Scopes Ledger Populations.
Import ListNotations.
Open Scope Z_scope.

(** Two parts of a job that no record lies in both of. *)
Definition disjoint (b c : box) : Prop :=
  forall r, covers (scope_of b) r = true -> covers (scope_of c) r = false.

(** The guard puts wider boxes in the place of some, where a search takes too long. It may widen none. *)
Definition guard := list partition -> list box -> scope -> box -> box.
Definition is_guard (widened : guard) : Prop := forall ps bs s b,
  amount (widened ps bs s b) = amount b /\
  (forall r, covers (scope_of b) r = true -> covers (scope_of (widened ps bs s b)) r = true).
Definition guarded (widened : guard) (ps : list partition) (bs : list box) (s : scope) : Z :=
  largest ps (map (widened ps bs s) bs) s.

Lemma guarded_bounds : forall widened, is_guard widened -> forall ps bs s r,
  nonnegative bs -> record ps r -> covers s r = true -> load bs r <= guarded widened ps bs s.
Proof. intros widened G ps bs s r N R C. apply wider_bounds; auto. Qed.

(** What the service has written of an account, and of a world, after whatever requests. *)
Definition written (widened : guard) (ps : list partition) (st : state) : Prop :=
  exists c es, 0 <= c /\ run (guarded widened ps) (opened c) es = Some st.

Definition written_world (widened : guard) (partitions : nat -> list partition) (is_pure : bool)
  (w : world) : Prop :=
  exists caps c acts, (forall i, 0 <= caps i) /\ 0 <= c /\
    history partitions (guarded widened) is_pure (opened_world caps c) acts = Some w.

Lemma written_is_sound : forall widened ps st, is_guard widened -> written widened ps st -> sound ps st.
Proof.
  intros widened ps st G [c [es [C H]]]. pose proof (run_sound ps _ (guarded_bounds widened G ps)) as S.
  exact (S _ _ _ (opened_sound ps c C) H).
Qed.

Lemma some_record : forall ps, declared ps -> exists r, record ps r.
Proof.
  intros ps P. destruct (brute_largest_attained ps [] [] P) as [r [R _]]; [|now exists r].
  split; unfold cells_in; intros [|x]; discriminate.
Qed.

Lemma written_world_is_sound : forall widened partitions is_pure w, is_guard widened ->
  (forall i, declared (partitions i)) -> written_world widened partitions is_pure w ->
  sound_world partitions is_pure w.
Proof.
  intros widened partitions is_pure w G D [caps [c [acts [C [E H]]]]].
  apply (history_sound partitions _ is_pure (guarded_bounds widened G) (fun i => some_record _ (D i)) _ _ _
    (opened_world_sound _ is_pure caps c C E) H).
Qed.

(** An account with an opening load [n] that bounds the loads of the erased account holds both. *)
Theorem continued_within_highest : forall widened ps, is_guard widened -> forall (erased : state) n h c es st,
  (forall r, load (boxes erased) r <= n) -> 0 <= c ->
  run (guarded widened ps) (opened c) (Opening n h :: es) = Some st ->
  forall r r', record ps r' -> load (boxes erased) r + (load (boxes st) r' - n) <= highest_cap st.
Proof.
  intros widened ps G erased n h c es st L C H r r' R. specialize (L r).
  pose proof (run_sound ps _ (guarded_bounds widened G ps) _ _ _ (opened_sound ps c C) H) as S.
  pose proof (never_over _ _ S r' R). lia.
Qed.

(** ** The bound that an account keeps: every amount in the cells of the narrowest restriction of its scope *)

Definition amount_in (narrowest : box -> nat) (x v : nat) (b : box) : Z :=
  if Nat.eqb (narrowest b) x && allows (cells_in (scope_of b) x) v then amount b else 0.
Definition fullest_of (narrowest : box -> nat) (bs : list box) (x : nat) : Z :=
  maximum (map (fun v => sum_over (amount_in narrowest x v) bs) (domain [] bs [] x)).
Definition kept_bound (narrowest : box -> nat) (n : nat) (bs : list box) : Z :=
  sum_over (fullest_of narrowest bs) (seq 0 n).

Lemma fullest_of_bounds : forall narrowest bs x v, nonnegative bs ->
  sum_over (amount_in narrowest x v) bs <= fullest_of narrowest bs x.
Proof.
  intros narrowest bs x v N. set (D := domain [] bs [] x).
  assert (exists u, In u D /\
    sum_over (amount_in narrowest x v) bs <= sum_over (amount_in narrowest x u) bs) as [u [I L]].
  { destruct (in_dec Nat.eq_dec v D) as [I|I]; [exists v; split; [exact I | lia]|].
    pose proof (domain_inhabited [] bs [] x) as H. fold D in H. destruct D as [|u rest] eqn:E; [congruence|].
    exists u. split; [now left|]. apply sum_over_le. intros b B. specialize (N b B). unfold amount_in.
    destruct (cells_in (scope_of b) x) as [cells|] eqn:S; simpl; [|lia].
    assert (is_in v cells = false) as F.
    { apply not_true_iff_false. intro J. apply is_in_spec in J. apply I. rewrite <- E. apply known_in_domain.
      unfold known_cells, cells_in. simpl. destruct x; apply in_flat_map; exists b; rewrite S; auto. }
    rewrite F, andb_false_r. destruct (_ && _); lia. }
  apply Z.le_trans with (1 := L). apply maximum_ge. apply in_map_iff. eauto.
Qed.

Lemma kept_bound_bounds : forall narrowest n bs r, nonnegative bs -> (forall b, In b bs ->
  (narrowest b < n)%nat) ->
  load bs r <= kept_bound narrowest n bs.
Proof.
  intros narrowest n bs r N W. unfold kept_bound.
  apply Z.le_trans with (sum_over (fun x => sum_over (amount_in narrowest x (r x)) bs) (seq 0 n)).
  - rewrite sum_over_swap. apply sum_over_le. intros b B.
    rewrite (sum_over_ext _ (fun x => if Nat.eqb x (narrowest b) then amount_in narrowest x (r x) b else 0)).
    + rewrite sum_over_one; [|apply seq_NoDup | apply in_seq; specialize (W b B); lia].
      unfold amount_in, share. rewrite Nat.eqb_refl. specialize (N b B). simpl.
      destruct (covers (scope_of b) r) eqn:C; [rewrite (proj1 (covers_spec _ _) C); lia|].
      destruct (allows _ _); lia.
    + intros x _. unfold amount_in. rewrite (Nat.eqb_sym (narrowest b)).
      now destruct (Nat.eqb x (narrowest b)).
  - apply sum_over_le. intros x _. now apply fullest_of_bounds.
Qed.

Section Decisions.
  Variable ps : list partition.
  Hypothesis ps_declared : declared ps.

  Notation apply := (apply (largest ps)).
  Notation sound := (sound ps).

  Lemma some_fullest : forall st s, sound st -> well_formed ps s ->
    exists r, record ps r /\ covers s r = true /\ load (boxes st) r = largest ps (boxes st) s.
  Proof. intros st s S W. apply largest_is_largest; auto. apply S. Qed.

  (** ** An admission *)

  Lemma admitted_if : forall st job b, (exists st', apply st (Reserve job b) = Some st') <->
    0 < amount b /\ largest ps (boxes st) (scope_of b) + amount b <= cap st.
  Proof.
    intros st job b. simpl. destruct ((0 <? amount b) && _) eqn:E.
    - rewrite andb_true_iff, Z.ltb_lt, Z.leb_le in E. split; eauto.
    - rewrite andb_false_iff, Z.ltb_ge, Z.leb_gt in E. split; [intros [st' H]; discriminate | lia].
  Qed.

  Lemma admitted_iff_fits : forall st, sound st -> forall job b, well_formed ps (scope_of b) ->
    (exists st', apply st (Reserve job b) = Some st') <-> 0 < amount b /\
      forall r, record ps r -> covers (scope_of b) r = true -> load (boxes st) r + amount b <= cap st.
  Proof.
    intros st S job b W. rewrite admitted_if. destruct (some_fullest st _ S W) as [r [R [C E]]].
    split; intros [A F]; (split; [exact A|]); [|specialize (F r R C); lia].
    intros q Q D. pose proof (largest_bounds _ _ _ _ (amounts_nonnegative _ _ S) Q D). lia.
  Qed.

  Lemma refused_has_reason : forall st, sound st -> forall job b, well_formed ps (scope_of b) ->
    0 < amount b -> apply st (Reserve job b) = None ->
    exists r, record ps r /\ covers (scope_of b) r = true /\ cap st < load (boxes st) r + amount b.
  Proof.
    intros st S job b W A H. destruct (some_fullest st _ S W) as [r [R [C E]]].
    exists r. split; [exact R|]. split; [exact C|]. rewrite E. apply Z.lt_nge. intro F.
    destruct (proj2 (admitted_if st job b) (conj A F)) as [st' H']. congruence.
  Qed.

  Lemma kept_bound_decides : forall st, sound st -> forall narrowest n job b, well_formed ps (scope_of b) ->
    (forall d, In d (boxes st) -> (narrowest d < n)%nat) -> 0 < amount b ->
    kept_bound narrowest n (boxes st) + amount b <= cap st -> exists st', apply st (Reserve job b) = Some st'.
  Proof.
    intros st S narrowest n job b W Few A F. apply admitted_iff_fits; auto. split; [exact A|]. intros r _ _.
    pose proof (kept_bound_bounds narrowest n _ r (amounts_nonnegative _ _ S) Few). lia.
  Qed.

  (** ** Jobs of several parts *)

  (** A part does not change what is decided about a part that shares no record with it. *)
  Lemma disjoint_decides_same : forall st job b mid other c, sound st ->
    apply st (Reserve job b) = Some mid ->
    disjoint b c -> well_formed ps (scope_of c) ->
    (exists st', apply mid (Reserve other c) = Some st') <->
      (exists st', apply st (Reserve other c) = Some st').
  Proof.
    intros st job b mid other c S M D W. pose proof (apply_sound ps _ (largest_bounds ps) _ _ _ S M) as Sm.
    rewrite !admitted_iff_fits by auto.
    assert (Cap : cap mid = cap st) by (simpl in M; destruct ((0 <? amount b) && _); [injection M as M;
      now subst | discriminate]).
    assert (L : forall r, covers (scope_of c) r = true -> load (boxes mid) r = load (boxes st) r).
    { intros r C. rewrite (apply_load _ _ _ _ r M). simpl. unfold share.
      destruct (covers (scope_of b) r) eqn:Cb; [rewrite (D r Cb) in C; discriminate | lia]. }
    rewrite Cap.
    split; intros [A F]; (split; [exact A|]); intros r R C; specialize (F r R C); rewrite L in * by auto; lia.
  Qed.

  Lemma parts_alone : forall parts st, sound st -> (forall p, In p parts ->
    well_formed ps (scope_of (snd p))) ->
    ForallOrdPairs (fun p q => disjoint (snd p) (snd q)) parts ->
    (exists st', admit (largest ps) st parts = Some st') <->
    (forall p, In p parts -> exists st', apply st (Reserve (fst p) (snd p)) = Some st').
  Proof.
    induction parts as [|[job b] parts IH]; intros st S W D.
    - split; [intros _ p [] | intros _; exists st; reflexivity].
    - inversion D as [|? ? Dp Dr]; subst. rewrite Forall_forall in Dp.
      unfold admit, run in *. cbn [map follow fst snd]. destruct (apply st (Reserve job b)) as [mid|] eqn:M.
      + rewrite (IH mid (apply_sound ps _ (largest_bounds ps) _ _ _ S M)) by (auto; intros; apply W;
          now right).
        assert (Same : forall p, In p parts ->
          (exists st', apply mid (Reserve (fst p) (snd p)) = Some st') <->
          (exists st', apply st (Reserve (fst p) (snd p)) = Some st')).
        { intros p I. apply (disjoint_decides_same st job b mid _ _ S M (Dp p I)). apply W. now right. }
        split; intros H p I.
        * destruct I as [I|I]; [subst; simpl; eauto | now apply Same, H].
        * apply Same; [exact I | apply H; now right].
      + split; [intros [st' H]; discriminate|]. intro H. destruct (H (job, b) (or_introl eq_refl)) as [st' E].
        simpl fst in E. simpl snd in E. congruence.
  Qed.
End Decisions.
