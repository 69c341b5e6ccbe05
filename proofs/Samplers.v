(** * The laws of two loops of packages/forests/grovekeeper_forests/noise/draws.py, given exact words:
    Bernoulli(exp(-gamma)) for gamma up to 1 (S4), and the discrete Laplace number of a trial (S6). *)

Require Import ZArith List Lia Bool Arith Reals Lra.
Require Import Model Jobs Chances.
Import ListNotations.
Open Scope R_scope.

Section Bernoulli.
  Variable gamma : R.

  (** The chance that the flips of chance gamma / 1, ..., gamma / n all succeed. *)
  Fixpoint going (n : nat) : R :=
    match n with O => 1 | S n => going n * (gamma / INR (S n)) end.

  (** The chance that a flip up to the n-th is the first to fail, and its number is odd, or is even. *)
  Fixpoint ended (is_odd : bool) (n : nat) : R :=
    match n with
    | O => 0
    | S n => ended is_odd n + if eqb (Nat.odd (S n)) is_odd then going n * (1 - gamma / INR (S n)) else 0
    end.

  Lemma going_is : forall n, going n = gamma ^ n / INR (fact n).
  Proof.
    induction n as [|n IH]; [simpl; field |]. rewrite fact_simpl, mult_INR. cbn [going pow]. rewrite IH.
    field. split; [apply INR_fact_neq_0 | apply not_0_INR; lia].
  Qed.

  Lemma ended_or_going : forall n, ended true n + ended false n + going n = 1.
  Proof.
    induction n as [|n IH]; [simpl; lra |]. cbn [ended going]. destruct (Nat.odd (S n)); simpl eqb; lra.
  Qed.

  Lemma ended_is_series : forall n, ended true (S n) =
    sum_f_R0 (fun i => / INR (fact i) * (- gamma) ^ i) n - if Nat.odd (S n) then going (S n) else 0.
  Proof.
    induction n as [|n IH]; [simpl; field |]. rewrite tech5.
    change (ended true (S (S n))) with (ended true (S n) +
      if eqb (Nat.odd (S (S n))) true then going (S n) * (1 - gamma / INR (S (S n))) else 0).
    change (going (S (S n))) with (going (S n) * (gamma / INR (S (S n)))).
    rewrite IH, (Nat.odd_succ (S n)), <- Nat.negb_odd.
    replace (/ INR (fact (S n)) * (- gamma) ^ S n) with ((-1) ^ S n * going (S n)).
    2: { replace (- gamma) with (-1 * gamma) by ring. rewrite going_is, Rpow_mult_distr. unfold Rdiv. ring. }
    set (g := going (S n)). destruct (Nat.odd (S n)) eqn:O.
    - apply Nat.odd_spec in O. destruct O as [k E]. rewrite E, Nat.add_1_r, pow_1_odd. cbn [negb eqb]. ring.
    - assert (V : Nat.even (S n) = true) by now rewrite <- Nat.negb_odd, O.
      apply Nat.even_spec in V. destruct V as [k E]. rewrite E, pow_1_even. cbn [negb eqb]. ring.
  Qed.

  (** The loop ends with an odd number with chance exp(-gamma), and with an even one else. *)
  Theorem odd_with_exp : Un_cv (ended true) (exp (- gamma)).
  Proof.
    apply (CV_shift _ 1). apply Un_cv_ext with (un := fun n =>
      sum_f_R0 (fun i => / INR (fact i) * (- gamma) ^ i) n - if Nat.odd (S n) then going (S n) else 0).
    { intro n. rewrite Nat.add_1_r. now rewrite ended_is_series. }
    rewrite <- (Rminus_0_r (exp _)). apply CV_minus; [exact (proj2_sig (exist_exp (- gamma))) |].
    intros e E. destruct (cv_speed_pow_fact gamma e E) as [N H]. exists N. intros n L.
    destruct (Nat.odd (S n)); [rewrite going_is; apply H; lia | rewrite R_dist_eq; exact E].
  Qed.

  Theorem even_else : Un_cv (ended false) (1 - exp (- gamma)).
  Proof.
    apply Un_cv_ext with (un := fun n => 1 - (ended true n + going n)).
    { intro n. pose proof (ended_or_going n). lra. }
    rewrite <- (Rplus_0_r (exp _)). apply CV_minus.
    - intros e E. exists 0%nat. intros. now rewrite R_dist_eq.
    - apply CV_plus; [exact odd_with_exp |].
      apply Un_cv_ext with (2 := cv_speed_pow_fact gamma). intro n. now rewrite going_is.
  Qed.
End Bernoulli.

Lemma exp_power : forall n, exp (-1) ^ n = exp (- INR n).
Proof.
  induction n as [|n IH]; [simpl; now rewrite Ropp_0, exp_0 |].
  rewrite S_INR. simpl pow. rewrite IH, <- exp_plus. f_equal. ring.
Qed.

(** Above 1: flips of chance exp(-1), and one for the fraction; all have to accept. *)
Theorem flips_multiply : forall n fraction, exp (-1) ^ n * exp (- fraction) = exp (- (INR n + fraction)).
Proof. intros n fraction. rewrite exp_power, <- exp_plus. f_equal. ring. Qed.

Section Laplace.
  Variables s t : nat.                 (** the scale is t / s *)
  Hypothesis rate : (0 < s)%nat.
  Hypothesis unity : (0 < t)%nat.

  (** One trial gives X = u + t v: u is one of t and is kept with chance exp(-u / t), and v flips of chance
      exp(-1) succeed before the first that fails. *)
  Definition whole (x : nat) : R :=
    / INR t * exp (- (INR (x mod t) / INR t)) * (exp (-1) ^ (x / t) * (1 - exp (-1))).
  (** The magnitude is X / s, rounded down; a fair sign, and a negative zero starts over. *)
  Definition magnitude (y : nat) : R := sum_of (fun i => whole (s * y + i)) (seq 0 s).
  Definition trial (z : Z) : R := / 2 * magnitude (Z.abs_nat z).

  Lemma whole_shift : forall a x, whole (a + x) = exp (- (INR a / INR t)) * whole x.
  Proof.
    assert (T : INR t <> 0) by (apply not_0_INR; lia).
    assert (W : forall x, whole x = exp (- (INR x / INR t)) * (/ INR t * (1 - exp (-1)))).
    { intro x. unfold whole. rewrite (Nat.div_mod_eq x t) at 3. rewrite plus_INR, mult_INR.
      replace (- ((INR t * INR (x / t) + INR (x mod t)) / INR t))
        with (- (INR (x mod t) / INR t) + - INR (x / t)) by (field; exact T).
      rewrite exp_plus, exp_power. ring. }
    intros a x. rewrite !W, plus_INR.
    replace (- ((INR a + INR x) / INR t)) with (- (INR a / INR t) + - (INR x / INR t)) by (field; exact T).
    rewrite exp_plus. ring.
  Qed.

  (** A trial that gives no number starts over, so the chances of the result are in the same proportions. *)
  Theorem trial_is_laplace : forall z, trial z = exp (- (INR (s * Z.abs_nat z) / INR t)) * trial 0.
  Proof.
    intro z. unfold trial, magnitude. rewrite Rmult_comm, (Rmult_comm (/ 2)), <- Rmult_assoc. f_equal.
    rewrite Rmult_comm, <- sum_of_scale. apply sum_of_ext. intros i _.
    rewrite whole_shift, Nat.mul_0_r. apply Rmult_comm.
  Qed.
End Laplace.
