(** * Jobs that are as private as they are charged, in ε and in ρ: definitions alone. That jobs are so is what
    the filter theorems assume; for some mechanisms Mechanisms' statements say it. *)

Require Import ZArith List Reals.
Require Import Model.
Import ListNotations.
Open Scope R_scope.

Definition sum_of {A} (f : A -> R) (l : list A) : R := fold_right (fun x z => f x + z) 0 l.

(** ** Neighbours, and jobs that are as private as they are charged *)
(** [added xs d d']: the rows [d'] are the rows [d] and, at any places, the rows [xs]. *)
Inductive added {row} : list row -> list row -> list row -> Prop :=
| no_row d : added [] d d
| one_more x xs d d1 d2 : added xs d (d1 ++ d2) -> added (x :: xs) d (d1 ++ x :: d2).

(** Neither chance is more than e^[e] times the other. *)
Definition close (e p q : R) : Prop := p <= exp e * q /\ q <= exp e * p.
Definition private {row outcome} (e : R) (law : list row -> outcome -> R) : Prop :=
  (forall d o, 0 <= law d o) /\ (forall d x d' o, added [x] d d' -> close e (law d o) (law d' o)).

Section Honest.
  Context {row outcome : Type} (unit : R).      (** the loss of one step of an amount, for example 10^-12 *)
  Notation law := (list row -> outcome -> R).
  (** A job reads the rows that its scope covers; k times its loss of one row is at most what is charged. *)
  Definition honest_job (k : nat) (cell_of : row -> joint_cell) (b : box) (m : law) : Prop :=
    exists e (rule : law), 0 <= e /\ private e rule /\ INR k * e <= unit * IZR (amount b) /\
      forall d o, m d o = rule (filter (fun x => covers (scope_of b) (cell_of x)) d) o.
  (** Every job that the analyst starts is charged, and honest. *)
  Definition honest k cell_of (s : strategy) : Prop := forall h q m, s h = Start q m ->
    exists job b, q = Charge job b /\ honest_job k cell_of b m.
  Definition honest_in_world k cell_of (s : strategy) : Prop := forall h q m, s h = Start q m ->
    exists i job b own, q = Own i (Charge job b) /\ honest_job (k i) (cell_of i) b own /\
      forall (d : nat -> list row) o, m d o = own (d i) o.
End Honest.

(** ** In ρ, for jobs with finitely many [outcomes], each of positive chance *)
(** exp((α-1) D_α) of two laws is the sum of [kernel] over the outcomes; of ρ it is exp(α(α-1) ρ) at most. *)
Definition kernel (alpha p q : R) : R := Rpower p alpha * Rpower q (1 - alpha).
Definition order (alpha : R) : R := alpha * (alpha - 1).

Section Rho.
  Context {row outcome : Type} (outcomes : list outcome) (alpha unit : R).
  Notation law := (list row -> outcome -> R).
  (** A job reads the rows that its scope covers. [i] rows change its law by at most i² e in ρ, and k² e is
      at most what is charged. That a law of ρ for one row has i² ρ for [i] rows stays on paper. *)
  Definition zcdp_job (k : nat) (cell_of : row -> joint_cell) (b : box) (m : law) : Prop :=
    exists e (rule : law), 0 <= e /\ INR k * INR k * e <= unit * IZR (amount b) /\
      (forall d o, 0 < rule d o) /\ (forall d, sum_of (rule d) outcomes = 1) /\
      (forall xs d d', (length xs <= k)%nat -> added xs d d' ->
        sum_of (fun o => kernel alpha (rule d o) (rule d' o)) outcomes <=
        exp (order alpha * (INR (length xs) * INR (length xs) * e))) /\
      forall d o, m d o = rule (filter (fun x => covers (scope_of b) (cell_of x)) d) o.
  (** Every job that the analyst starts is charged, and is such a job. *)
  Definition zcdp_jobs k cell_of (s : @strategy entry (list row) outcome) : Prop :=
    forall h q m, s h = Start q m -> exists job b, q = Charge job b /\ zcdp_job k cell_of b m.
  Definition zcdp_in_world k cell_of (s : @strategy act (nat -> list row) outcome) : Prop :=
    forall h q m, s h = Start q m ->
      exists i job b own, q = Own i (Charge job b) /\ zcdp_job (k i) (cell_of i) b own /\
        forall (d : nat -> list row) o, m d o = own (d i) o.
End Rho.

Section Moments.
  Context {state request data outcome : Type} (advance : state -> request -> option state).
  Variable outcomes : list outcome.
  Notation action := (@action request data outcome).
  Notation strategy := (@strategy request data outcome).
  (** What may follow a request, and the transcripts of [n] events. *)
  Definition possible (st : state) (a : action) : list (@event outcome) :=
    match advance st (asked a), a with
    | None, _ => [Answer false]
    | Some _, Write _ => [Answer true]
    | Some _, Start _ _ => map Release outcomes
    end.
  Fixpoint transcripts_of (s : strategy) (st : state) (h : list event) (n : nat) : list (list event) :=
    match n with
    | O => [[]]
    | S n => flat_map (fun ev => map (cons ev) (transcripts_of s (next advance st (s h)) (h ++ [ev]) n))
               (possible st (s h))
    end.

  (** exp((α-1) D_α) of the laws of transcripts. An [alpha] below 0 gives the other order of neighbours. *)
  Definition moment_of (alpha : R) (s : strategy) (st : state) (h : list event) (d d' : data) (n : nat) : R :=
    sum_of (fun w => kernel alpha (chance advance s st h d w) (chance advance s st h d' w))
      (transcripts_of s st h n).
End Moments.
