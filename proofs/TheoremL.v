(** * Theorem L in general: jobs that read the rows of any predicate, all chosen by what was released before.

    (a) is pure, transcript by transcript. (b) is zCDP, for finitely many outcomes: the moment of every order.
    Routing inside a tree (L4) is the case in which the predicates of a level's nodes exclude each other. *)

Require Import List Lia Bool Reals Lra.
Require Import Model Jobs Chances.
Import ListNotations.
Open Scope R_scope.

Section TheoremL.
  Context {row outcome : Type}.

  Record job := Job { predicate : row -> bool; cost : R; law : list row -> outcome -> R }.
  Definition choice := list outcome -> job.       (** the next job, by what was released before *)

  Definition read (j : job) (d : list row) : list row := filter (predicate j) d.
  Definition paid (j : job) (x : row) : R := if predicate j x then cost j else 0.

  (** The chance that the outcomes [w] follow the outcomes [h]. *)
  Fixpoint likelihood (s : choice) (h : list outcome) (d : list row) (w : list outcome) : R :=
    match w with
    | [] => 1
    | o :: rest => law (s h) (read (s h) d) o * likelihood s (h ++ [o]) d rest
    end.

  (** What the outcomes [w] cost a row: the sum over the jobs whose predicate holds for it. *)
  Fixpoint lost (s : choice) (h : list outcome) (x : row) (w : list outcome) : R :=
    match w with
    | [] => 0
    | o :: rest => paid (s h) x + lost s (h ++ [o]) x rest
    end.

  (** ** (a) *)

  Definition pure (s : choice) : Prop := forall h, private (cost (s h)) (law (s h)).

  Lemma likelihood_nonnegative : forall s d, pure s -> forall w h, 0 <= likelihood s h d w.
  Proof.
    intros s d P. induction w as [|o w IH]; simpl; intro h; [lra |]. apply Rmult_le_pos; [apply P | apply IH].
  Qed.

  (** The loss is at most what the jobs on the row's side cost, however they were chosen. *)
  Theorem theorem_L_pure : forall s x d d', pure s -> added [x] d d' -> forall w h,
    close (lost s h x w) (likelihood s h d w) (likelihood s h d' w).
  Proof.
    intros s x d d' P A. induction w as [|o w IH]; cbn [likelihood lost]; intro h.
    - apply close_same; lra.
    - apply close_product; try apply P; try apply likelihood_nonnegative; auto.
      now apply private_filter.
  Qed.

  (** ** (b) *)

  Variable outcomes : list outcome.
  Variable alpha : R.

  Notation kernel := (kernel alpha).
  Notation order := (order alpha).

  (** [cost] is in ρ: exp((α-1) D_α) is at most exp(α(α-1)ρ). Every law adds up to 1 and has full support. *)
  Definition zcdp (s : choice) : Prop := forall h,
    0 <= cost (s h) /\ (forall d o, 0 < law (s h) d o) /\ (forall d, sum_of (law (s h) d) outcomes = 1) /\
    (forall x d d', added [x] d d' ->
       sum_of (fun o => kernel (law (s h) d o) (law (s h) d' o)) outcomes <= exp (order * cost (s h))).

  Fixpoint transcripts (k : nat) : list (list outcome) :=
    match k with
    | O => [[]]
    | S k => flat_map (fun o => map (cons o) (transcripts k)) outcomes
    end.

  (** The moment of the two laws of whole transcripts. *)
  Definition moment (s : choice) (h : list outcome) (d d' : list row) (k : nat) : R :=
    sum_of (fun w => kernel (likelihood s h d w) (likelihood s h d' w)) (transcripts k).

  Lemma kernel_positive : forall p q, 0 < kernel p q.
  Proof. intros. apply Rmult_lt_0_compat; apply exp_pos. Qed.

  Lemma kernel_product : forall p q p' q', 0 < p -> 0 < q -> 0 < p' -> 0 < q' ->
    kernel (p * p') (q * q') = kernel p q * kernel p' q'.
  Proof. intros. unfold kernel. rewrite <- !Rpower_mult_distr by auto. ring. Qed.

  Lemma kernel_same : forall p, 0 < p -> kernel p p = p.
  Proof.
    intros p P. unfold kernel. rewrite <- Rpower_plus. replace (alpha + (1 - alpha)) with 1 by ring.
    now apply Rpower_1.
  Qed.

  Lemma likelihood_positive : forall s d, zcdp s -> forall w h, 0 < likelihood s h d w.
  Proof.
    intros s d P. induction w as [|o w IH]; simpl; intro h; [lra |].
    apply Rmult_lt_0_compat; [apply P | apply IH].
  Qed.

  Lemma moment_step : forall s h d d' k, zcdp s -> moment s h d d' (S k) =
    sum_of (fun o => kernel (law (s h) (read (s h) d) o) (law (s h) (read (s h) d') o)
                     * moment s (h ++ [o]) d d' k) outcomes.
  Proof.
    intros s h d d' k P. unfold moment. cbn [transcripts]. induction outcomes as [|o l IH]; [reflexivity |].
    cbn [flat_map]. rewrite sum_of_app, IH. simpl. f_equal. clear IH. rewrite Rmult_comm, <- sum_of_scale.
    induction (transcripts k) as [|w ws IHw]; [reflexivity |]. simpl. rewrite IHw. f_equal.
    rewrite kernel_product; try apply P; try now apply likelihood_positive. ring.
  Qed.

  (** If along every history the jobs on the row's side cost at most [b], the moment is that of [b]. *)
  Theorem theorem_L_zcdp : forall s x d d', zcdp s -> added [x] d d' -> 0 <= order -> forall k h b, 0 <= b ->
    (forall w, (length w <= k)%nat -> lost s h x w <= b) -> moment s h d d' k <= exp (order * b).
  Proof.
    intros s x d d' P A O. induction k as [|k IH]; intros h b B L.
    - unfold moment. simpl. rewrite kernel_same, Rplus_0_r, <- exp_0 by lra.
      apply exp_le. now apply Rmult_le_pos.
    - rewrite moment_step by auto. set (n := paid (s h) x). destruct (P h) as [C [F [One M]]].
      assert (T : forall o, moment s (h ++ [o]) d d' k <= exp (order * (b - n))).
      { intro o. apply IH.
        - specialize (L [o] (le_n_S _ _ (Nat.le_0_l k))). simpl in L. fold n in L. lra.
        - intros w W. specialize (L (o :: w) (le_n_S _ _ W)). simpl in L. fold n in L. lra. }
      assert (K : sum_of (fun o => kernel (law (s h) (read (s h) d) o) (law (s h) (read (s h) d') o)) outcomes
                  <= exp (order * n)).
      { pose proof (added_filter row (predicate (s h)) x d d' A) as R. unfold n, paid, read.
        destruct (predicate (s h) x); [now apply (M x) |]. rewrite R, Rmult_0_r, exp_0. right.
        rewrite <- (One (filter (predicate (s h)) d)). apply sum_of_ext. intros. now apply kernel_same. }
      apply Rle_trans with (exp (order * n) * exp (order * (b - n))).
      + eapply Rle_trans; [|apply Rmult_le_compat_r; [left; apply exp_pos | exact K]].
        rewrite <- sum_of_scale. apply sum_of_le. intros o _.
        apply Rmult_le_compat_l; [left; apply kernel_positive | apply T].
      + rewrite <- exp_plus. right. f_equal. ring.
  Qed.
End TheoremL.
