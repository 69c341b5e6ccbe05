(** * Permute-and-flip (L2) is as private as it is charged, by a walk over finitely many candidates.

    The walk is that of packages/forests/grovekeeper_forests/noise/draws.py. The next candidate is uniform
    among those not visited, and accepts with chance exp(-gamma (best - u)). The first that accepts is the
    result. Its chance is [first], a polynomial in the chances with which the others accept. Others that
    accept less often leave more to a candidate ([first_mono]). Some candidate wins, or nobody accepts
    ([total_chance]). If all accept less often by one factor, each wins less often ([first_less_often]), since
    the derivative in this factor is the chance that all others refuse. *)

Require Import List Permutation Lia Arith Reals Lra.
Require Import Model Jobs Chances.
Import ListNotations.
Open Scope R_scope.

(** Every element with the others. *)
Fixpoint picks (l : list nat) : list (nat * list nat) :=
  match l with
  | [] => []
  | x :: rest => (x, rest) :: map (fun pick => (fst pick, x :: snd pick)) (picks rest)
  end.

(** The chance that [r] is the first to accept, if each candidate accepts with chance [accept]. *)
Fixpoint walk (accept : nat -> R) (n : nat) (l : list nat) (r : nat) : R :=
  match n with
  | O => 0
  | S n =>
      / INR (S n) * sum_of (fun pick => if Nat.eqb (fst pick) r then accept r
        else (1 - accept (fst pick)) * walk accept n (snd pick) r) (picks l)
  end.

Section Law.
  Variable gamma : R.
  Variable candidates : list nat.

  Definition is_best (u : nat -> R) (best : R) : Prop :=
    (forall s, In s candidates -> u s <= best) /\ exists s, In s candidates /\ u s = best.
  Definition accepts (u : nat -> R) (best : R) (s : nat) : R := exp (- (gamma * (best - u s))).
  Definition permute_and_flip (u : nat -> R) (best : R) (r : nat) : R :=
    walk (accepts u best) (length candidates) candidates r.
End Law.

(** ** Picks and sums *)

Lemma sum_of_cons : forall A (f : A -> R) x l, sum_of f (x :: l) = f x + sum_of f l.
Proof. reflexivity. Qed.

Lemma sum_of_map : forall A B (f : B -> R) (h : A -> B) l, sum_of f (map h l) = sum_of (fun x => f (h x)) l.
Proof. induction l as [|x l IH]; simpl; auto. now rewrite IH. Qed.

Lemma sum_of_add : forall A (f g : A -> R) l, sum_of (fun x => f x + g x) l = sum_of f l + sum_of g l.
Proof. induction l as [|x l IH]; simpl; [lra |]. rewrite IH. lra. Qed.

Lemma sum_of_constant : forall A c (l : list A), sum_of (fun _ => c) l = INR (length l) * c.
Proof.
  induction l as [|x l IH]; [simpl; lra |]. rewrite sum_of_cons, IH. cbn [length]. rewrite S_INR. lra.
Qed.

Lemma picks_length : forall l, length (picks l) = length l.
Proof. induction l as [|x l IH]; simpl; auto. now rewrite map_length, IH. Qed.

Lemma pick_permutation : forall l pick, In pick (picks l) -> Permutation l (fst pick :: snd pick).
Proof.
  induction l as [|x l IH]; simpl; intros pick I; [destruct I |]. destruct I as [I|I]; [now subst |].
  apply in_map_iff in I. destruct I as [p [E I]]. subst. simpl.
  rewrite (IH p I) at 1. apply perm_swap.
Qed.

Lemma pick_in : forall l pick, In pick (picks l) -> In (fst pick) l /\ incl (snd pick) l.
Proof.
  intros l pick I. apply pick_permutation, Permutation_sym in I.
  split; [|intros x X]; (eapply Permutation_in; [exact I |]); [now left | now right].
Qed.

Lemma pick_shorter : forall l pick, In pick (picks l) -> length l = S (length (snd pick)).
Proof. intros l pick I. now rewrite (Permutation_length (pick_permutation l pick I)). Qed.

(** Two picks in a row may be exchanged. *)
Lemma picks_swap : forall (f : nat -> nat -> list nat -> R) l,
  sum_of (fun p => sum_of (fun q => f (fst p) (fst q) (snd q)) (picks (snd p))) (picks l) =
  sum_of (fun p => sum_of (fun q => f (fst q) (fst p) (snd q)) (picks (snd p))) (picks l).
Proof.
  intros f l. revert f. induction l as [|x l IH]; intro f; [reflexivity |].
  assert (S : forall g : nat -> nat -> list nat -> R,
    sum_of (fun p => sum_of (fun q => g (fst p) (fst q) (snd q)) (picks (snd p))) (picks (x :: l)) =
    sum_of (fun q => g x (fst q) (snd q)) (picks l) + (sum_of (fun p => g (fst p) x (snd p)) (picks l)
      + sum_of (fun p => sum_of (fun q => g (fst p) (fst q) (x :: snd q)) (picks (snd p))) (picks l))).
  { intro g. cbn [picks]. rewrite sum_of_cons. f_equal. rewrite sum_of_map, <- sum_of_add.
    apply sum_of_ext. intros p _. cbn [picks fst snd]. now rewrite sum_of_cons, sum_of_map. }
  rewrite (S f), (S (fun a b => f b a)), (IH (fun a b m => f a b (x :: m))). ring.
Qed.

(** ** The chance that one candidate, which accepts with chance [a], is the first, among the others [m] *)

Fixpoint first (a : R) (q : nat -> R) (n : nat) (m : list nat) : R :=
  / INR (S n) * (a + match n with
    | O => 0
    | S n' => sum_of (fun pick => (1 - q (fst pick)) * first a q n' (snd pick)) (picks m)
    end).

Definition nobody (q : nat -> R) (m : list nat) : R := fold_right (fun s z => (1 - q s) * z) 1 m.
Definition chances (q : nat -> R) (m : list nat) : Prop := forall s, In s m -> 0 <= q s <= 1.

Lemma chances_rest : forall q m pick, In pick (picks m) -> chances q m -> chances q (snd pick).
Proof. intros q m pick I C s J. apply C. now apply (pick_in m pick I). Qed.

Lemma share_positive : forall n, 0 < / INR (S n).
Proof. intro n. apply Rinv_0_lt_compat, lt_0_INR. lia. Qed.

Lemma first_nonnegative : forall a q n m, 0 <= a -> chances q m -> 0 <= first a q n m.
Proof.
  intros a q. induction n as [|n IH]; intros m A C; cbn [first].
  - apply Rmult_le_pos; [left; apply share_positive | lra].
  - apply Rmult_le_pos; [left; apply share_positive |].
    assert (0 <= sum_of (fun pick => (1 - q (fst pick)) * first a q n (snd pick)) (picks m)); [|lra].
    rewrite <- (Rmult_0_r (INR (length (picks m)))), <- sum_of_constant. apply sum_of_le. intros pick I.
    pose proof (C (fst pick) (proj1 (pick_in m pick I))). apply Rmult_le_pos; [lra |].
    apply IH; auto. now apply (chances_rest q m).
Qed.

Lemma first_scale : forall k a q n m, first (k * a) q n m = k * first a q n m.
Proof.
  intros k a q. induction n as [|n IH]; intro m; cbn [first]; [ring |].
  rewrite (sum_of_ext _ (fun p => (1 - q (fst p)) * first a q n (snd p) * k)) by (intros; rewrite IH; ring).
  rewrite sum_of_scale. ring.
Qed.

(** Others that accept less often leave more to the candidate. *)
Lemma first_mono : forall k a a' q q' n m, 0 <= k -> 0 <= a' -> a <= k * a' -> chances q m -> chances q' m ->
  (forall s, In s m -> q' s <= q s) -> 0 <= a -> first a q n m <= k * first a' q' n m.
Proof.
  intros k a a' q q' n. induction n as [|n IH]; intros m K A' L C C' Q A; rewrite <- first_scale; cbn [first].
  - apply Rmult_le_compat_l; [left; apply share_positive | lra].
  - apply Rmult_le_compat_l; [left; apply share_positive |]. apply Rplus_le_compat; auto.
    apply sum_of_le. intros pick I. destruct (pick_in m pick I) as [J M].
    pose proof (C _ J). pose proof (C' _ J). pose proof (Q _ J). apply Rmult_le_compat; try lra.
    + apply first_nonnegative; auto. now apply (chances_rest q m).
    + rewrite first_scale. apply IH; auto; now apply chances_rest with (1 := I).
Qed.

Lemma nobody_pick : forall q m pick, In pick (picks m) ->
  nobody q m = (1 - q (fst pick)) * nobody q (snd pick).
Proof.
  induction m as [|x m IH]; simpl; intros pick I; [destruct I |]. destruct I as [I|I]; [now subst |].
  apply in_map_iff in I. destruct I as [p [E I]]. subst. simpl. rewrite (IH p I). ring.
Qed.

Lemma times_size : forall n z, INR (S n) * (/ INR (S n) * z) = z.
Proof. intros n z. rewrite <- Rmult_assoc, Rinv_r, Rmult_1_l; auto. apply not_0_INR. lia. Qed.

(** Some candidate is the first, or nobody accepts. *)
Lemma total_chance : forall q n m, length m = S n ->
  sum_of (fun p => first (q (fst p)) q n (snd p)) (picks m) = 1 - nobody q m.
Proof.
  intros q. induction n as [|n IH]; intros m L.
  - destruct m as [|x [|y m]]; try discriminate. simpl. rewrite Rinv_1. ring.
  - apply (Rmult_eq_reg_l (INR (S (S n)))); [|apply not_0_INR; lia].
    rewrite (Rmult_comm _ (sum_of _ _)), <- sum_of_scale.
    rewrite (sum_of_ext _ (fun p => q (fst p) + sum_of (fun t =>
      (1 - q (fst t)) * first (q (fst p)) q n (snd t)) (picks (snd p)))).
    2: { intros p _. rewrite Rmult_comm. cbn [first]. apply times_size. }
    rewrite sum_of_add, (picks_swap (fun s t m => (1 - q t) * first (q s) q n m)), <- sum_of_add.
    rewrite (sum_of_ext _ (fun _ => 1 - nobody q m)).
    2: { intros p I. rewrite (nobody_pick q m p I).
         rewrite (sum_of_ext _ (fun s => first (q (fst s)) q n (snd s) * (1 - q (fst p)))) by (intros; ring).
         rewrite sum_of_scale, IH by (pose proof (pick_shorter m p I); lia). ring. }
    now rewrite sum_of_constant, picks_length, L.
Qed.

(** ** Candidates that all accept less often, by one factor, win less often *)

Lemma lim_same : forall f g c d d', (forall y, f y = g y) -> d = d' ->
  derivable_pt_lim f c d -> derivable_pt_lim g c d'.
Proof.
  intros f g c d d' E D H e P. subst. destruct (H e P) as [delta Q]. exists delta. intros h N S.
  rewrite <- !E. now apply Q.
Qed.

Lemma lim_linear : forall k z c, derivable_pt_lim (fun y => k + y * z) c z.
Proof.
  intros k z c e E. exists (mkposreal 1 Rlt_0_1). intros h N _.
  replace ((k + (c + h) * z - (k + c * z)) / h - z) with 0 by (field; exact N). now rewrite Rabs_R0.
Qed.

Lemma lim_sum : forall A (f : A -> R -> R) f' c l, (forall x, In x l -> derivable_pt_lim (f x) c (f' x)) ->
  derivable_pt_lim (fun y => sum_of (fun x => f x y) l) c (sum_of f' l).
Proof.
  intros A f f' c. induction l as [|x l IH]; intro H; [apply derivable_pt_lim_const |].
  apply (derivable_pt_lim_plus (f x) (fun y => sum_of (fun x => f x y) l)); [apply H; now left |].
  apply IH. intros z I. apply H. now right.
Qed.

Lemma first_derivative : forall a q c n m, length m = n ->
  derivable_pt_lim (fun y => first (y * a) (fun s => y * q s) n m) c (a * nobody (fun s => c * q s) m).
Proof.
  intros a q c. induction n as [|n IH]; intros m L.
  - destruct m; [|discriminate]. apply (lim_same (fun y => 0 + y * a) _ c a); [| simpl; ring |].
    + intro y. simpl. field.
    + apply lim_linear.
  - set (N := nobody (fun s => c * q s) m).
    replace (a * N) with (/ INR (S (S n)) * (a + sum_of (fun p => - q (fst p)
      * first (c * a) (fun s => c * q s) n (snd p) + (1 - c * q (fst p))
      * (a * nobody (fun s => c * q s) (snd p))) (picks m))).
    + apply (derivable_pt_lim_scal (fun y => y * a + sum_of (fun p =>
        (1 - y * q (fst p)) * first (y * a) (fun s => y * q s) n (snd p)) (picks m))).
      apply (derivable_pt_lim_plus (fun y => y * a)).
      * apply (lim_same (fun y => 0 + y * a) _ c a); [intro; ring | reflexivity | apply lim_linear].
      * apply (lim_sum _ (fun p y => (1 - y * q (fst p)) * first (y * a) (fun s => y * q s) n (snd p))).
        intros p I. apply (derivable_pt_lim_mult (fun y => 1 - y * q (fst p))).
        -- apply (lim_same (fun y => 1 + y * - q (fst p)) _ c (- q (fst p)));
             [intro; ring | reflexivity | apply lim_linear].
        -- apply IH. pose proof (pick_shorter m p I). lia.
    + apply (Rmult_eq_reg_l (INR (S (S n)))); [|apply not_0_INR; lia]. rewrite times_size.
      rewrite (sum_of_ext _ (fun p => first (c * q (fst p)) (fun s => c * q s) n (snd p) * - a + a * N)).
      2: { intros p I. unfold N. rewrite (nobody_pick _ m p I).
           replace (- q (fst p) * first (c * a) (fun s => c * q s) n (snd p))
             with (- first (q (fst p) * (c * a)) (fun s => c * q s) n (snd p)) by (rewrite first_scale; ring).
           replace (q (fst p) * (c * a)) with (a * (c * q (fst p))) by ring. rewrite first_scale. ring. }
      rewrite sum_of_add, sum_of_scale, sum_of_constant, picks_length, L.
      rewrite (total_chance (fun s => c * q s) n m L), (S_INR (S n)). fold N. ring.
Qed.

Lemma nobody_nonnegative : forall q m, chances q m -> 0 <= nobody q m.
Proof.
  intros q. induction m as [|x m IH]; simpl; intro C; [lra |]. pose proof (C x (or_introl eq_refl)).
  apply Rmult_le_pos; [lra |]. apply IH. intros s I. apply C. now right.
Qed.

Lemma chances_scale : forall c q m, 0 <= c <= 1 -> chances q m -> chances (fun s => c * q s) m.
Proof. intros c q m C H s I. specialize (H s I). split; nra. Qed.

Lemma first_less_often : forall a q n m c, length m = n -> 0 <= a -> chances q m -> 0 <= c <= 1 ->
  first (c * a) (fun s => c * q s) n m <= first a q n m.
Proof.
  intros a q n m c L A H C.
  assert (One : first (1 * a) (fun s => 1 * q s) n m <= 1 * first a q n m).
  { apply first_mono; auto; try lra; [apply chances_scale; auto; lra | intros; lra]. }
  destruct (Req_dec c 1) as [E|E]; [subst; lra |].
  destruct (MVT_cor2 (fun y => first (y * a) (fun s => y * q s) n m)
    (fun y => a * nobody (fun s => y * q s) m) c 1) as [y [D Y]];
    [lra | intros; now apply first_derivative |].
  assert (0 <= a * nobody (fun s => y * q s) m * (1 - c)); [|lra].
  apply Rmult_le_pos; [|lra]. apply Rmult_le_pos; auto. apply nobody_nonnegative, chances_scale; auto. lra.
Qed.

(** ** The walk *)

Definition others (r : nat) (l : list nat) : list nat := filter (fun s => negb (Nat.eqb s r)) l.

Lemma others_cons : forall r x l,
  others r (x :: l) = if Nat.eqb x r then others r l else x :: others r l.
Proof. intros r x l. unfold others. simpl. now destruct (Nat.eqb x r). Qed.

Lemma others_absent : forall r l, ~ In r l -> others r l = l.
Proof.
  intros r. induction l as [|x l IH]; simpl; intro N; auto.
  destruct (Nat.eqb_spec x r); simpl; [tauto | now rewrite IH by tauto].
Qed.

Lemma others_picked : forall r l, NoDup l -> In r l -> In (r, others r l) (picks l).
Proof.
  intros r. induction l as [|x l IH]; intros N I; [destruct I |]. inversion N; subst.
  rewrite others_cons. simpl.
  destruct (Nat.eqb_spec x r) as [E|E]; [subst; left; now rewrite others_absent |]. right. apply in_map_iff.
  exists (r, others r l). split; [reflexivity | apply IH; auto; now destruct I].
Qed.

Lemma picks_others : forall r a (F : nat -> list nat -> R) l, NoDup l -> In r l ->
  sum_of (fun p => if Nat.eqb (fst p) r then a else F (fst p) (others r (snd p))) (picks l) =
  a + sum_of (fun p => F (fst p) (snd p)) (picks (others r l)).
Proof.
  intros r a F l. revert F. induction l as [|x l IH]; intros F N I; [destruct I |]. inversion N; subst.
  cbn [picks]. rewrite sum_of_cons, sum_of_map, others_cons. cbn [fst snd].
  destruct (Nat.eqb_spec x r) as [E|E].
  - subst. rewrite others_absent by assumption. f_equal. apply sum_of_ext. intros p J.
    destruct (pick_in l p J) as [P Q]. destruct (Nat.eqb_spec (fst p) r); [congruence |].
    rewrite others_cons, Nat.eqb_refl, others_absent; auto.
  - cbn [picks]. rewrite sum_of_cons, sum_of_map. cbn [fst snd].
    rewrite (sum_of_ext _ (fun p => if Nat.eqb (fst p) r then a
                                    else (fun s m => F s (x :: m)) (fst p) (others r (snd p)))).
    2: { intros p _. rewrite others_cons. now destruct (Nat.eqb_spec x r). }
    rewrite (IH (fun s m => F s (x :: m))) by (auto; destruct I; congruence). ring.
Qed.

Lemma walk_first : forall q r n l, length l = S n -> NoDup l -> In r l ->
  walk q (S n) l r = first (q r) q n (others r l).
Proof.
  intros q r. induction n as [|n IH]; intros l L N I.
  - destruct l as [|x [|y l]]; try discriminate. destruct I as [I|[]]. subst. simpl. now rewrite Nat.eqb_refl.
  - cbn [first]. rewrite <- (picks_others r (q r) (fun s m => (1 - q s) * first (q r) q n m)) by auto.
    cbn [walk]. f_equal. apply sum_of_ext. intros p J. destruct (Nat.eqb_spec (fst p) r) as [E|E]; auto.
    f_equal. pose proof (pick_permutation l p J) as P. apply IH.
    + pose proof (pick_shorter l p J). lia.
    + apply (Permutation_NoDup P) in N. now inversion N.
    + apply (Permutation_in r P) in I. destruct I; congruence.
Qed.

(** ** The loss *)

Section Private.
  Variables (gamma : R) (candidates : list nat).
  Hypothesis gamma_nonnegative : 0 <= gamma.
  Hypothesis distinct : NoDup candidates.

  Lemma accepts_chance : forall u best,
    is_best candidates u best -> chances (accepts gamma u best) candidates.
  Proof.
    intros u best [B _] s I. specialize (B s I). unfold accepts. split; [left; apply exp_pos |].
    rewrite <- exp_0. apply exp_le. nra.
  Qed.

  Lemma permute_and_flip_below : forall u v best best' low high r,
    is_best candidates u best -> is_best candidates v best' -> In r candidates ->
    (forall s, In s candidates -> low <= v s - u s <= high) ->
    permute_and_flip gamma candidates v best' r
    <= exp (gamma * (high - low)) * permute_and_flip gamma candidates u best r.
  Proof.
    intros u v best best' low high r U V I H. pose proof (accepts_chance u best U) as P.
    pose proof (accepts_chance v best' V) as Q. set (p := accepts gamma u best) in *.
    set (q := accepts gamma v best') in *. set (c := exp (- (gamma * (best' - best - low)))).
    unfold permute_and_flip. destruct (length candidates) as [|n] eqn:L;
      [destruct candidates; [destruct I | discriminate] |].
    fold p q. rewrite !walk_first by auto.
    pose proof (others_picked r candidates distinct I) as K. pose proof (proj2 (pick_in _ _ K)) as O.
    simpl in O.
    assert (C : 0 <= c <= 1).
    { split; [left; apply exp_pos |]. rewrite <- exp_0. apply exp_le.
      destruct U as [_ [s [S E]]]. destruct V as [B _]. specialize (B s S). specialize (H s S). nra. }
    assert (S : forall s, In s candidates -> c * p s <= q s).
    { intros s S. specialize (H s S). unfold c, p, q, accepts. rewrite <- exp_plus. apply exp_le. nra. }
    apply Rle_trans with (exp (gamma * (high - low)) *
      first (c * p r) (fun s => c * p s) n (others r candidates)).
    - apply first_mono; try (intros s J; apply Q, O, J); auto.
      + left. apply exp_pos.
      + apply Rmult_le_pos; [apply C | apply P, I].
      + specialize (H r I). unfold c, p, q, accepts. rewrite <- !exp_plus. apply exp_le. nra.
      + apply chances_scale; auto. intros s J. apply P, O, J.
      + apply Q, I.
    - apply Rmult_le_compat_l; [left; apply exp_pos |]. apply first_less_often; auto; try apply P; auto.
      + pose proof (pick_shorter _ _ K) as E. simpl in E. lia.
      + intros s J. apply P, O, J.
  Qed.

  (** The loss is gamma times the range of the change of the utilities. *)
  Theorem permute_and_flip_private : forall u v best best' low high r,
    is_best candidates u best -> is_best candidates v best' -> In r candidates ->
    (forall s, In s candidates -> low <= v s - u s <= high) ->
    close (gamma * (high - low)) (permute_and_flip gamma candidates u best r)
                                 (permute_and_flip gamma candidates v best' r).
  Proof.
    intros u v best best' low high r U V I H. split; [|now apply permute_and_flip_below].
    replace (high - low) with (- low - - high) by ring. apply permute_and_flip_below; auto.
    intros s S. specialize (H s S). lra.
  Qed.
End Private.
