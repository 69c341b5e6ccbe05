(** * Three mechanisms that are as private as they are charged: the exponential mechanism (L1), integer noise
    (L3), and stable shards inside one job (L5), as laws on finitely or countably many outcomes. *)

Require Import ZArith List Lia Bool Reals Lra.
Require Import Model Jobs Chances.
Import ListNotations.
Open Scope R_scope.

(** ** L1: the chance of a candidate is its weight exp(gamma u) over the sum of all weights *)

Section Selection.
  Context {candidate : Type}.
  Variable candidates : list candidate.
  Hypothesis some : candidates <> [].
  Variable gamma : R.
  Hypothesis gamma_nonnegative : 0 <= gamma.

  Definition weight (u : candidate -> R) (c : candidate) : R := exp (gamma * u c).
  Definition selection (u : candidate -> R) (c : candidate) : R := weight u c / sum_of (weight u) candidates.

  Lemma weights_positive : forall u, 0 < sum_of (weight u) candidates.
  Proof. intro u. apply sum_of_positive; auto. intro c. apply exp_pos. Qed.

  Lemma selection_below : forall u v low high c, In c candidates ->
    (forall d, In d candidates -> low <= v d - u d <= high) ->
    selection v c <= exp (gamma * (high - low)) * selection u c.
  Proof.
    intros u v low high c C H. unfold selection, Rdiv.
    pose proof (weights_positive u) as U. pose proof (weights_positive v) as V.
    assert (N : weight v c <= exp (gamma * high) * weight u c).
    { unfold weight. rewrite <- exp_plus. apply exp_le. specialize (H c C). nra. }
    assert (D : exp (gamma * low) * sum_of (weight u) candidates <= sum_of (weight v) candidates).
    { rewrite Rmult_comm, <- sum_of_scale. apply sum_of_le. intros d D. unfold weight.
      rewrite <- exp_plus. apply exp_le. specialize (H d D). nra. }
    set (A := sum_of (weight u) candidates) in *. set (B := sum_of (weight v) candidates) in *.
    replace (exp (gamma * (high - low))) with (exp (gamma * high) * / exp (gamma * low)).
    2: { rewrite <- exp_Ropp, <- exp_plus. f_equal. ring. }
    pose proof (exp_pos (gamma * low)) as L.
    assert (0 < exp (gamma * low) * A) by now apply Rmult_lt_0_compat.
    replace (exp (gamma * high) * / exp (gamma * low) * (weight u c * / A))
      with (exp (gamma * high) * weight u c * / (exp (gamma * low) * A)) by (field; lra).
    apply Rmult_le_compat; auto.
    - left. apply exp_pos.
    - left. now apply Rinv_0_lt_compat.
    - now apply Rinv_le_contravar.
  Qed.

  (** The loss is gamma times the range of the change, not twice the largest change. *)
  Theorem selection_private : forall u v low high c, In c candidates ->
    (forall d, In d candidates -> low <= v d - u d <= high) ->
    close (gamma * (high - low)) (selection u c) (selection v c).
  Proof.
    intros u v low high c C H. split; [|now apply selection_below].
    replace (high - low) with (- low - - high) by ring. apply selection_below; [exact C|].
    intros d D. specialize (H d D). lra.
  Qed.
End Selection.

(** ** L3: integer noise; the chance of a vector is a product of factors a·exp(-gamma |z - f|) *)

Fixpoint noisy (a gamma : R) (f z : list Z) : R :=
  match f, z with
  | x :: f, y :: z => a * exp (- gamma * IZR (Z.abs (y - x))) * noisy a gamma f z
  | [], [] => 1
  | _, _ => 0
  end.

Fixpoint distance (f g : list Z) : Z :=
  match f, g with x :: f, y :: g => (Z.abs (x - y) + distance f g)%Z | _, _ => 0%Z end.

Lemma noisy_nonnegative : forall a gamma, 0 <= a -> forall f z, 0 <= noisy a gamma f z.
Proof.
  intros a gamma A. induction f as [|x f IH]; intros [|y z]; simpl; try lra.
  apply Rmult_le_pos; auto. apply Rmult_le_pos; auto. left. apply exp_pos.
Qed.

Lemma one_noisy : forall a gamma x y z, 0 <= a -> 0 <= gamma ->
  close (gamma * IZR (Z.abs (x - y))) (a * exp (- gamma * IZR (Z.abs (z - x))))
        (a * exp (- gamma * IZR (Z.abs (z - y)))).
Proof.
  intros a gamma x y z A G. assert (T : forall p q, (Z.abs (z - q) <= Z.abs (z - p) + Z.abs (x - y))%Z ->
    a * exp (- gamma * IZR (Z.abs (z - p)))
    <= exp (gamma * IZR (Z.abs (x - y))) * (a * exp (- gamma * IZR (Z.abs (z - q))))).
  { intros p q L. apply IZR_le in L. rewrite plus_IZR in L.
    rewrite (Rmult_comm (exp _)), Rmult_assoc, <- exp_plus.
    apply Rmult_le_compat_l; auto. apply exp_le. nra. }
  split; apply T; lia.
Qed.

Theorem noise_private : forall a gamma, 0 <= a -> 0 <= gamma -> forall f g z, length f = length g ->
  close (gamma * IZR (distance f g)) (noisy a gamma f z) (noisy a gamma g z).
Proof.
  intros a gamma A G. induction f as [|x f IH]; intros [|y g] z L; try discriminate; simpl in *.
  - apply close_same; [lra | destruct z; lra].
  - destruct z as [|t z]; [split; lra |]. injection L as L. rewrite plus_IZR, Rmult_plus_distr_l.
    assert (forall p, 0 <= a * exp p) by (intro p; apply Rmult_le_pos; auto; left; apply exp_pos).
    apply close_product; auto using noisy_nonnegative, one_noisy.
Qed.

(** ** L5: shards; part [i] of a stable assignment has a mechanism of its own, and a row is in one part *)

Section Shards.
  Context {row outcome : Type}.
  Variable part_of : row -> nat.
  Variable law : nat -> list row -> outcome -> R.
  Variable e : R.
  Hypothesis each : forall i, private e (law i).
  Hypothesis loss : 0 <= e.

  Definition part (i : nat) (d : list row) : list row := filter (fun x => Nat.eqb (part_of x) i) d.

  Fixpoint shards (parts : list nat) (d : list row) (os : list outcome) : R :=
    match parts, os with
    | i :: parts, o :: os => law i (part i d) o * shards parts d os
    | [], [] => 1
    | _, _ => 0
    end.

  Lemma shards_nonnegative : forall parts d os, 0 <= shards parts d os.
  Proof.
    induction parts as [|i parts IH]; intros d [|o os]; simpl; try lra. apply Rmult_le_pos; auto. apply each.
  Qed.

  Lemma part_close : forall i x d d' o, added [x] d d' ->
    close (if Nat.eqb (part_of x) i then e else 0) (law i (part i d) o) (law i (part i d') o).
  Proof. intros i x d d' o A. exact (private_filter _ _ _ e (law i) x d d' o (each i) A). Qed.

  Lemma other_parts : forall parts x d d' os, added [x] d d' -> ~ In (part_of x) parts ->
    close 0 (shards parts d os) (shards parts d' os).
  Proof.
    induction parts as [|i parts IH]; intros x d d' [|o os] A N; simpl in *; try (apply close_same; lra).
    rewrite <- (Rplus_0_l 0). apply close_product; try apply each; auto using shards_nonnegative.
    - pose proof (part_close i x d d' o A) as C.
      destruct (Nat.eqb_spec (part_of x) i); [subst; tauto | exact C].
    - apply (IH x); tauto.
  Qed.

  (** All shards together cost one, not their sum. *)
  Theorem shards_cost_one : forall parts x d d' os, NoDup parts -> added [x] d d' ->
    close e (shards parts d os) (shards parts d' os).
  Proof.
    induction parts as [|i parts IH]; intros x d d' [|o os] N A; simpl; try (apply close_same; lra).
    inversion N; subst. pose proof (part_close i x d d' o A) as C.
    destruct (Nat.eqb_spec (part_of x) i) as [E|E].
    - rewrite <- (Rplus_0_r e). apply close_product; try apply each; auto using shards_nonnegative.
      apply (other_parts _ x); congruence.
    - rewrite <- (Rplus_0_l e). apply close_product; try apply each; auto using shards_nonnegative.
      now apply (IH x).
  Qed.
End Shards.
