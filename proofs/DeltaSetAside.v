(** * δ that is set aside: an account of the same kind, whose amounts are the δ of mechanisms.

    A mechanism of (ε, δ) goes wrong with chance δ, and then its outcome may tell anything about the rows that
    it reads. Its δ is reserved and charged at once. So [apply] bounds the chance that any mechanism goes
    wrong about a record, however they are chosen. What outcomes tell if all goes well, together with this
    chance, stays on paper (docs/proofs/external.md). *)

Require Import ZArith List Lia Bool Reals Lra.
Require Import Model Jobs Maxima Scopes Chances Ledger Decisions.
Import ListNotations.
Open Scope R_scope.

Lemma take_first : forall p l, take p (p :: l) = Some l.
Proof. intros p l. cbn [take]. destruct (same_reservation p p); [reflexivity | contradiction]. Qed.

(** A charge at once is decided as its reservation. *)
Lemma charged_at_once : forall tightest st job b,
  (exists st', run tightest st [Reserve job b; Charge job b] = Some st') <->
  (exists st', apply tightest st (Reserve job b) = Some st').
Proof.
  intros tightest st job b. unfold run. cbn [follow].
  destruct (apply tightest st (Reserve job b)) as [mid|] eqn:E; [|reflexivity].
  split; [now exists mid|]. intros _. simpl in E. destruct (_ && _)%bool; [|discriminate].
  injection E as E. subst mid. cbn [apply reserved]. rewrite take_first. cbn [option_map]. eauto.
Qed.

Lemma charged_iff_fits : forall ps, declared ps -> forall st, sound ps st -> forall job b,
  well_formed ps (scope_of b) ->
  (exists st', run (largest ps) st [Reserve job b; Charge job b] = Some st') <-> (0 < amount b /\
  forall r, record ps r -> covers (scope_of b) r = true -> load (boxes st) r + amount b <= cap st)%Z.
Proof. intros ps D st S job b W. rewrite charged_at_once. now apply admitted_iff_fits. Qed.

Section DeltaSetAside.
  Variable ps : list partition.
  Variable tightest : list box -> scope -> Z.
  Hypothesis tightest_bounds : forall bs s r,
    nonnegative bs -> record ps r -> covers s r = true -> (load bs r <= tightest bs s)%Z.
  Notation advance := (apply tightest).

  Context {data outcome : Type} (outcomes : list outcome) (unit : R) (d : data) (r : joint_cell).
  Hypothesis unit_nonnegative : 0 <= unit.
  Hypothesis r_is_record : record ps r.

  (** An analyst asks for entries, and starts mechanisms. Their law is that of outcomes if all goes well. *)
  Variable s : @strategy entry data outcome.

  (** The chance that a mechanism goes wrong about the record within [n] events, in the state [st], after [h].
  *)
  Fixpoint goes_wrong (n : nat) (st : state) (h : list event) : R :=
    match n with
    | O => 0
    | S n =>
        match advance st (asked (s h)), s h with
        | None, _ => goes_wrong n st (h ++ [Answer false])
        | Some st', Write _ => goes_wrong n st' (h ++ [Answer true])
        | Some st', Start q law =>
            let delta := unit * IZR (spent_by r q) in
            delta + (1 - delta) * sum_of (fun o => law d o * goes_wrong n st' (h ++ [Release o])) outcomes
        end
    end.

  Definition laws_add_up : Prop := forall h q law, s h = Start q law ->
    (forall o, 0 <= law d o) /\ sum_of (law d) outcomes <= 1.

  Lemma highest_stays_below : forall st e st' most, advance st e = Some st' ->
    (cap_of e <= most)%Z -> (highest_cap st <= most)%Z -> (highest_cap st' <= most)%Z.
  Proof.
    intros st e st' most H C M. apply apply_accepted in H. destruct H; simpl in *; try lia.
    destruct (is_used st || (c =? 0)%Z); lia.
  Qed.

  (** What is left of the highest cap bounds what can still go wrong. *)
  Lemma goes_wrong_below_rest : forall most, laws_add_up -> (forall h, cap_of (asked (s h)) <= most)%Z ->
    unit * IZR most <= 1 -> forall n st h, sound ps st -> (highest_cap st <= most)%Z ->
    0 <= goes_wrong n st h <= unit * IZR (most - load (charged st) r).
  Proof.
    intros most Laws Caps One. induction n as [|n IH]; intros st h S M; cbn [goes_wrong].
    - split; [lra|]. apply Rmult_le_pos; [exact unit_nonnegative|]. apply IZR_le.
      pose proof (never_over _ _ S r r_is_record) as O. rewrite load_boxes in O.
      pose proof (load_nonnegative _ r (proj2 (sound_parts _ _ S))). lia.
    - destruct (advance st (asked (s h))) as [st'|] eqn:E; [|now apply IH].
      pose proof (apply_sound ps _ tightest_bounds _ _ _ S E) as S'.
      pose proof (highest_stays_below _ _ _ _ E (Caps h) M) as M'.
      pose proof (apply_charged _ _ _ _ r E) as L. pose proof (spent_by_nonnegative ps _ _ _ _ r S E) as P.
      destruct (s h) as [q|q law] eqn:A; simpl asked in *.
      + destruct (IH st' (h ++ [Answer true]) S' M') as [N B]. split; [exact N|].
        apply Rle_trans with (1 := B).
        apply Rmult_le_compat_l; [exact unit_nonnegative|]. apply IZR_le. lia.
      + destruct (Laws _ _ _ A) as [N T]. set (delta := unit * IZR (spent_by r q)).
        set (rest := unit * IZR (most - load (charged st') r)).
        assert (Rest : 0 <= rest).
        { destruct (IH st' h S' M') as [X Y]. unfold rest. lra. }
        assert (Split : unit * IZR (most - load (charged st) r) = delta + rest).
        { unfold delta, rest. rewrite <- Rmult_plus_distr_l, <- plus_IZR. do 2 f_equal. lia. }
        assert (Delta : 0 <= delta <= 1).
        { split; [apply Rmult_le_pos; [exact unit_nonnegative | now apply IZR_le]|].
          pose proof (load_nonnegative _ r (proj1 (sound_parts _ _ S))).
          apply Rle_trans with (unit * IZR most); [|exact One]. rewrite <- (Rplus_0_r delta).
          apply Rle_trans with (delta + rest); [lra|]. rewrite <- Split.
          apply Rmult_le_compat_l; [exact unit_nonnegative|]. apply IZR_le. lia. }
        set (wrong := fun o => goes_wrong n st' (h ++ [Release o])).
        assert (Sum : 0 <= sum_of (fun o => law d o * wrong o) outcomes <= rest).
        { assert (Each : forall o, 0 <= wrong o <= rest) by (intro o; now apply IH). split.
          - apply Rle_trans with (sum_of (fun _ : outcome => 0 * 0) outcomes).
            + rewrite sum_of_scale, Rmult_0_r. lra.
            + apply sum_of_le. intros o _. rewrite Rmult_0_l. now apply Rmult_le_pos; [apply N | apply Each].
          - apply Rle_trans with (sum_of (fun o => law d o * rest) outcomes).
            + apply sum_of_le. intros o _. apply Rmult_le_compat_l; [apply N | apply Each].
            + rewrite sum_of_scale. rewrite <- (Rmult_1_l rest) at 2. now apply Rmult_le_compat_r. }
        rewrite Split. cbv zeta. fold delta.
        change (sum_of _ outcomes) with (sum_of (fun o => law d o * wrong o) outcomes). split; nra.
  Qed.

  Theorem goes_wrong_below_cap : forall c most n, (0 <= c <= most)%Z -> laws_add_up ->
    (forall h, cap_of (asked (s h)) <= most)%Z -> unit * IZR most <= 1 ->
    goes_wrong n (opened c) [] <= unit * IZR most.
  Proof.
    intros c most n [C M] Laws Caps One.
    destruct (goes_wrong_below_rest most Laws Caps One n (opened c) []) as [_ B]; auto using opened_sound.
    simpl in B. unfold load in B. simpl in B. now rewrite Z.sub_0_r in B.
  Qed.
End DeltaSetAside.
