(** * A unit with several rows: what it loses is at most the load of its fullest cell, in prices.

    A job has a rate for one row. A unit has at most k rows, each in a cell of its own. In pure loss a job
    costs the unit its rate times the rows that it reads; in ρ and μ² its rate times that number's square.
    Its price is at least k times, or k² times, its rate. *)

Require Import ZArith List Lia Bool.
Require Import Model Maxima.
Import ListNotations.
Open Scope Z_scope.

Record priced := Priced { scope_of_job : scope; rate : Z; price : Z }.

Definition as_box (j : priced) : box := Box (scope_of_job j) (price j).

(** 1 if a job reads a row, else 0. *)
Definition touches (j : priced) (r : joint_cell) : Z := if covers (scope_of_job j) r then 1 else 0.
Definition rows_read (j : priced) (rows : list joint_cell) : Z := sum_over (touches j) rows.

(** What the jobs cost the unit, in pure loss, and in ρ or μ². *)
Definition pure_cost (jobs : list priced) (rows : list joint_cell) : Z :=
  sum_over (fun j => rows_read j rows * rate j) jobs.
Definition square_cost (jobs : list priced) (rows : list joint_cell) : Z :=
  sum_over (fun j => rows_read j rows * (rows_read j rows * rate j)) jobs.

(** Jobs that cost at most their prices, counted where they read a row, cost at most its load. *)
Lemma below_load : forall jobs r (cost : priced -> Z), (forall j, In j jobs -> cost j <= price j) ->
  sum_over (fun j => touches j r * cost j) jobs <= load (map as_box jobs) r.
Proof.
  intros jobs r cost H. unfold load. rewrite sum_over_map. apply sum_over_le. intros j I. specialize (H j I).
  unfold share, touches, as_box. simpl. destruct (covers (scope_of_job j) r); lia.
Qed.

Section Unit.
  Variables (jobs : list priced) (rows : list joint_cell) (k m : Z).
  Hypothesis few_rows : Z.of_nat (length rows) <= k.
  Hypothesis some : 0 < k.
  Hypothesis limit : 0 <= m.
  Hypothesis rates : forall j, In j jobs -> 0 <= rate j.
  (** [m] bounds the load of every row's cell in prices: the number that admission compares with a cap. *)
  Hypothesis loads : forall r, In r rows -> load (map as_box jobs) r <= m.

  (** At most k rows, each of which counts at most a k-th of [m]. *)
  Lemma rows_below : forall f : joint_cell -> Z,
    (forall r, In r rows -> k * f r <= m) -> sum_over f rows <= m.
  Proof.
    intros f F. apply (Z.mul_le_mono_pos_l _ _ k some). rewrite Z.mul_comm, <- sum_over_scale.
    apply Z.le_trans with (Z.of_nat (length rows) * m); [|nia].
    rewrite <- sum_over_constant. apply sum_over_le. intros r I. specialize (F r I). lia.
  Qed.

  Theorem pure_cost_below : (forall j, In j jobs -> k * rate j <= price j) -> pure_cost jobs rows <= m.
  Proof.
    intro P. unfold pure_cost.
    rewrite (sum_over_ext _ (fun j => sum_over (fun r => touches j r * rate j) rows))
      by (intros; now rewrite sum_over_scale).
    rewrite sum_over_swap. apply rows_below. intros r I.
    rewrite Z.mul_comm, <- sum_over_scale. eapply Z.le_trans; [|apply (loads r I)].
    eapply Z.le_trans; [|apply below_load; exact P]. apply sum_over_le. lia.
  Qed.

  Lemma square_of_rows : forall j, rows_read j rows * (rows_read j rows * rate j) =
    sum_over (fun r => sum_over (fun s => touches j r * (touches j s * rate j)) rows) rows.
  Proof.
    intro j. unfold rows_read at 1. rewrite <- sum_over_scale. apply sum_over_ext. intros r _.
    rewrite (sum_over_ext _ (fun s => touches j s * (touches j r * rate j))) by (intros; ring).
    rewrite sum_over_scale. unfold rows_read. ring.
  Qed.

  Theorem square_cost_below :
    (forall j, In j jobs -> k * k * rate j <= price j) -> square_cost jobs rows <= m.
  Proof.
    intro P. unfold square_cost. rewrite (sum_over_ext _ _ _ (fun j _ => square_of_rows j)), sum_over_swap.
    apply rows_below. intros r I. rewrite sum_over_swap, Z.mul_comm, <- sum_over_scale.
    apply rows_below. intros s _. rewrite Z.mul_comm, <- !sum_over_scale.
    eapply Z.le_trans; [|apply (loads r I)].
    apply Z.le_trans with (sum_over (fun j => touches j r * (k * k * rate j)) jobs); [|now apply below_load].
    apply sum_over_le. intros j J. specialize (rates j J). unfold touches.
    destruct (covers (scope_of_job j) r), (covers (scope_of_job j) s); nia.
  Qed.
End Unit.
