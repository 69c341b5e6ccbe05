(** * Chances that are close to each other, and finite sums of chances. *)

Require Import List Lia Bool Reals Lra.
Require Import Model Jobs.
Import ListNotations.
Open Scope R_scope.

Lemma exp_le : forall a b, a <= b -> exp a <= exp b.
Proof. intros a b [L|L]; [left; now apply exp_increasing | subst; lra]. Qed.

Lemma close_same : forall e p, 0 <= e -> 0 <= p -> close e p p.
Proof.
  intros e p E P. pose proof (exp_le 0 e E) as L. rewrite exp_0 in L.
  split; rewrite <- (Rmult_1_l p) at 1; now apply Rmult_le_compat_r.
Qed.

Lemma close_larger : forall e f p q, e <= f -> 0 <= p -> 0 <= q -> close e p q -> close f p q.
Proof.
  intros e f p q L P Q [U V]. apply exp_le in L.
  split; (eapply Rle_trans; [eassumption | now apply Rmult_le_compat_r]).
Qed.

(** Losses add up where chances are multiplied. *)
Lemma close_product : forall e f p q p' q', 0 <= p -> 0 <= q -> 0 <= p' -> 0 <= q' ->
  close e p q -> close f p' q' -> close (e + f) (p * p') (q * q').
Proof.
  intros e f p q p' q' P Q P' Q' [U V] [U' V']. unfold close. rewrite exp_plus. split.
  - replace (exp e * exp f * (q * q')) with (exp e * q * (exp f * q')) by ring.
    now apply Rmult_le_compat.
  - replace (exp e * exp f * (p * p')) with (exp e * p * (exp f * p')) by ring.
    now apply Rmult_le_compat.
Qed.

(** ** One row more *)

Lemma added_one : forall row (x : row) d d', added [x] d d' ->
  exists d1 d2, d = d1 ++ d2 /\ d' = d1 ++ x :: d2.
Proof. intros row x d d' A. inversion A as [|? ? ? d1 d2 B]; subst. inversion B; subst. eauto. Qed.

(** A job that does not read the row does not notice it; another job sees one row more. *)
Lemma added_filter : forall row (p : row -> bool) x d d', added [x] d d' ->
  if p x then added [x] (filter p d) (filter p d') else filter p d' = filter p d.
Proof.
  intros row p x d d' A. apply added_one in A. destruct A as [d1 [d2 [E F]]].
  subst. rewrite !filter_app. simpl.
  destruct (p x); [apply one_more, no_row | reflexivity].
Qed.

Lemma private_filter : forall row outcome (p : row -> bool) e (law : list row -> outcome -> R) x d d' o,
  private e law -> added [x] d d' ->
  close (if p x then e else 0) (law (filter p d) o) (law (filter p d') o).
Proof.
  intros row outcome p e law x d d' o [N P] A. pose proof (added_filter row p x d d' A) as F.
  destruct (p x); [now apply (P _ x) |]. rewrite F. apply close_same; auto. lra.
Qed.

(** ** Sums *)

Section Sums.
  Context {A : Type}.
  Implicit Types (f g : A -> R) (l : list A).

  Lemma sum_of_le : forall f g l, (forall x, In x l -> f x <= g x) -> sum_of f l <= sum_of g l.
  Proof.
    induction l as [|x l IH]; simpl; intro L; [lra |]. pose proof (L x (or_introl eq_refl)).
    assert (sum_of f l <= sum_of g l) by auto. lra.
  Qed.

  Lemma sum_of_ext : forall f g l, (forall x, In x l -> f x = g x) -> sum_of f l = sum_of g l.
  Proof. induction l as [|x l IH]; simpl; intro E; auto. rewrite E, IH; auto. Qed.

  Lemma sum_of_scale : forall f c l, sum_of (fun x => f x * c) l = sum_of f l * c.
  Proof. induction l as [|x l IH]; simpl; [lra |]. rewrite IH. lra. Qed.

  Lemma sum_of_app : forall f l k, sum_of f (l ++ k) = sum_of f l + sum_of f k.
  Proof. induction l as [|x l IH]; simpl; intro k; [lra |]. rewrite IH. lra. Qed.

  Lemma sum_of_positive : forall f l, (forall x, 0 < f x) -> l <> [] -> 0 < sum_of f l.
  Proof.
    intros f l P. induction l as [|x l IH]; intro N; [congruence |]. specialize (P x). simpl.
    destruct l as [|y l]; [simpl; lra |]. assert (0 < sum_of f (y :: l)) by (apply IH; discriminate). lra.
  Qed.
End Sums.
