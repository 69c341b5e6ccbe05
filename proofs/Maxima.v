(** * Largest sums, and their computation by eliminating one partition after the other.

    This is the arithmetic of packages/forests/grovekeeper_forests/privacy/joint_loads.py. A variable is a
    partition, its value is a cell, and a factor is an amount that depends on the cells of some partitions.
    Nothing here speaks about privacy. *)

Require Import ZArith List Lia Bool Arith.
Require Import Model.
Import ListNotations.
Open Scope Z_scope.

(** The largest of some numbers; 0 of none. *)
Definition maximum (l : list Z) : Z := match l with [] => 0 | z :: rest => fold_right Z.max z rest end.

Lemma maximum_cons : forall y d l, maximum (d :: y :: l) = Z.max y (maximum (d :: l)).
Proof. reflexivity. Qed.

Lemma maximum_ge : forall l z, In z l -> z <= maximum l.
Proof.
  intros [|d l]; [intros z [] |]. induction l as [|y l IH]; intros z I.
  - destruct I as [I|[]]. subst. cbn. lia.
  - rewrite maximum_cons. destruct I as [I|[I|I]].
    + specialize (IH z (or_introl I)). lia.
    + lia.
    + specialize (IH z (or_intror I)). lia.
Qed.

Lemma maximum_in : forall l, l <> [] -> In (maximum l) l.
Proof.
  intros [|d l] N; [congruence |]. clear N. induction l as [|y l IH]; [now left |].
  rewrite maximum_cons. destruct (Z.max_spec y (maximum (d :: l))) as [[_ E]|[_ E]]; rewrite E.
  - destruct IH as [I|I]; [now left | right; now right].
  - right. now left.
Qed.

Lemma put_same : forall A (f : nat -> A) i v, put f i v i = v.
Proof. intros. unfold put. now rewrite Nat.eqb_refl. Qed.

Lemma put_other : forall A (f : nat -> A) i k v, k <> i -> put f i v k = f k.
Proof. intros A f i k v N. unfold put. destruct (Nat.eqb_spec k i); congruence. Qed.

(** ** Sums *)

Section Sums.
  Context {A : Type}.
  Implicit Types (f g : A -> Z) (l : list A).

  Lemma sum_over_ext : forall f g l, (forall x, In x l -> f x = g x) -> sum_over f l = sum_over g l.
  Proof. induction l as [|x l IH]; simpl; intro E; auto. rewrite E, IH; auto. Qed.

  Lemma sum_over_le : forall f g l, (forall x, In x l -> f x <= g x) -> sum_over f l <= sum_over g l.
  Proof.
    induction l as [|x l IH]; simpl; intro L; [lia |]. pose proof (L x (or_introl eq_refl)).
    assert (sum_over f l <= sum_over g l) by auto. lia.
  Qed.

  Lemma sum_over_app : forall f l k, sum_over f (l ++ k) = sum_over f l + sum_over f k.
  Proof. induction l as [|x l IH]; simpl; intro k; auto. rewrite IH. lia. Qed.

  Lemma sum_over_add : forall f g l, sum_over (fun x => f x + g x) l = sum_over f l + sum_over g l.
  Proof. induction l as [|x l IH]; simpl; lia. Qed.

  Lemma sum_over_scale : forall f c l, sum_over (fun x => f x * c) l = sum_over f l * c.
  Proof. induction l as [|x l IH]; simpl; lia. Qed.

  Lemma sum_over_constant : forall c l, sum_over (fun _ : A => c) l = Z.of_nat (length l) * c.
  Proof. induction l as [|x l IH]; simpl sum_over; [| rewrite IH]; simpl length; lia. Qed.

  Lemma sum_over_filter : forall f test l,
    sum_over f (filter test l) = sum_over (fun x => if test x then f x else 0) l.
  Proof. induction l as [|x l IH]; simpl; auto. destruct (test x); simpl; lia. Qed.

  Lemma sum_over_map : forall B (f : B -> Z) (h : A -> B) l,
    sum_over f (map h l) = sum_over (fun x => f (h x)) l.
  Proof. induction l as [|x l IH]; simpl; auto. now rewrite IH. Qed.
End Sums.

Lemma sum_over_swap : forall A B (f : A -> B -> Z) l k,
  sum_over (fun x => sum_over (f x) k) l = sum_over (fun y => sum_over (fun x => f x y) l) k.
Proof.
  induction l as [|x l IH]; simpl; intro k; [rewrite sum_over_constant; lia |].
  now rewrite sum_over_add, IH.
Qed.


(** A number that follows from the cells in some partitions, whatever the others are. *)
Definition depends_on (xs : list nat) (F : joint_cell -> Z) : Prop :=
  forall a b, (forall x, In x xs -> a x = b x) -> F a = F b.

Record factor := Factor { variables : list nat; amounts : joint_cell -> Z }.

Definition is_local (f : factor) : Prop := depends_on (variables f) (amounts f).
Definition total (fs : list factor) (a : joint_cell) : Z := sum_over (fun f => amounts f a) fs.

Lemma total_depends : forall xs fs, (forall f, In f fs -> is_local f) ->
  (forall f, In f fs -> incl (variables f) xs) -> depends_on xs (total fs).
Proof.
  intros xs fs L I a b E. apply sum_over_ext. intros f J. apply L; auto. intros x X. apply E. now apply (I f).
Qed.

Section Search.
  Variable domain : nat -> list nat.          (** the cells that are searched in each partition *)
  Hypothesis inhabited : forall x, domain x <> [].

  Definition searched (a : joint_cell) : Prop := forall x, In (a x) (domain x).

  (** [m] is the maximum of [F] over all searched joint cells. *)
  Definition is_maximum (F : joint_cell -> Z) (m : Z) : Prop :=
    (forall a, searched a -> F a <= m) /\ (exists a, searched a /\ F a = m).

  Lemma is_maximum_unique : forall F m n, is_maximum F m -> is_maximum F n -> m = n.
  Proof. intros F m n [U [a [S E]]] [V [b [T D]]]. specialize (U b T). specialize (V a S). lia. Qed.

  (** ** Brute force: every joint cell of some partitions *)

  Fixpoint every_cell (xs : list nat) (base : joint_cell) : list joint_cell :=
    match xs with
    | [] => [base]
    | x :: rest => flat_map (fun v => every_cell rest (put base x v)) (domain x)
    end.

  Definition first_cell : joint_cell := fun x => hd 0%nat (domain x).

  Definition brute_force (xs : list nat) (F : joint_cell -> Z) : Z :=
    maximum (map F (every_cell xs first_cell)).

  Lemma first_cell_searched : searched first_cell.
  Proof.
    intro x. unfold first_cell. specialize (inhabited x). destruct (domain x); [congruence | now left].
  Qed.

  Lemma put_searched : forall a x v, searched a -> In v (domain x) -> searched (put a x v).
  Proof.
    intros a x v S I y. destruct (Nat.eq_dec y x); [subst; now rewrite put_same | now rewrite put_other].
  Qed.

  Lemma every_cell_searched : forall xs base a, searched base -> In a (every_cell xs base) -> searched a.
  Proof.
    induction xs as [|x xs IH]; simpl; intros base a S I.
    - destruct I as [I|[]]. now subst.
    - apply in_flat_map in I. destruct I as [v [V I]]. eapply IH; [|exact I]. now apply put_searched.
  Qed.

  Lemma every_cell_complete : forall xs base a, searched a -> exists b, In b (every_cell xs base) /\
    (forall x, In x xs -> b x = a x) /\ (forall x, ~ In x xs -> b x = base x).
  Proof.
    induction xs as [|x xs IH]; simpl; intros base a S.
    - exists base. repeat split; auto. intros x [].
    - destruct (IH (put base x (a x)) a S) as [b [I [E N]]].
      exists b. split; [apply in_flat_map; exists (a x); auto |]. split.
      + intros y [H|H]; auto. subst y. destruct (in_dec Nat.eq_dec x xs); auto. now rewrite N, put_same.
      + intros y H. rewrite N by tauto. apply put_other. intro. subst. tauto.
  Qed.

  Theorem brute_force_is_maximum : forall xs F, depends_on xs F -> is_maximum F (brute_force xs F).
  Proof.
    intros xs F L. unfold brute_force. split.
    - intros a S. destruct (every_cell_complete xs first_cell a S) as [b [I [E _]]].
      rewrite <- (L b a E). apply maximum_ge. now apply in_map.
    - destruct (every_cell_complete xs first_cell first_cell first_cell_searched) as [b [I _]].
      assert (N : map F (every_cell xs first_cell) <> []) by (destruct (every_cell xs first_cell); easy).
      apply maximum_in, in_map_iff in N. destruct N as [a [E J]].
      exists a. split; auto. eapply every_cell_searched; eauto using first_cell_searched.
  Qed.

  (** ** Tables: a factor is computed once at every combination of its variables *)

  Fixpoint look_up (key : list nat) (rows : list (list nat * Z)) : Z :=
    match rows with
    | [] => 0
    | (k, z) :: rest => if list_eq_dec Nat.eq_dec key k then z else look_up key rest
    end.

  Definition tabulated (xs : list nat) (F : joint_cell -> Z) : factor :=
    let rows := map (fun a => (map a xs, F a)) (every_cell xs first_cell) in
    Factor xs (fun a => look_up (map a xs) rows).

  Lemma look_up_row : forall xs F l a, depends_on xs F -> (exists b, In b l /\ map b xs = map a xs) ->
    look_up (map a xs) (map (fun b => (map b xs, F b)) l) = F a.
  Proof.
    intros xs F l a L. induction l as [|c l IH]; simpl; intros [b [I E]]; [destruct I |].
    destruct (list_eq_dec Nat.eq_dec (map a xs) (map c xs)) as [D|D].
    - apply L. intros x X. symmetry. now apply (ext_in_map D).
    - apply IH. destruct I as [I|I]; [congruence | eauto].
  Qed.

  Lemma tabulated_amount : forall xs F a, depends_on xs F -> searched a -> amounts (tabulated xs F) a = F a.
  Proof.
    intros xs F a L S. apply look_up_row; auto.
    destruct (every_cell_complete xs first_cell a S) as [b [I [E _]]]. exists b.
    split; auto. now apply map_ext_in.
  Qed.

  Lemma tabulated_local : forall xs F, is_local (tabulated xs F).
  Proof. intros xs F a b E. simpl. f_equal. now apply map_ext_in. Qed.

  (** ** Elimination *)

  Definition mentions (x : nat) (f : factor) : bool := is_in x (variables f).
  Definition arrived (x : nat) (fs : list factor) : list factor := filter (mentions x) fs.
  Definition waiting (x : nat) (fs : list factor) : list factor := filter (fun f => negb (mentions x f)) fs.
  Definition others (x : nat) (fs : list factor) : list nat :=
    nodup Nat.eq_dec (remove Nat.eq_dec x (flat_map variables fs)).

  (** The largest sum of some factors over the cells of one partition. *)
  Definition joined (x : nat) (fs : list factor) (a : joint_cell) : Z :=
    maximum (map (fun v => total fs (put a x v)) (domain x)).

  (** All factors with a variable give way to one table over their other variables. *)
  Definition eliminate (x : nat) (fs : list factor) : list factor :=
    tabulated (others x (arrived x fs)) (joined x (arrived x fs)) :: waiting x fs.

  Definition eliminated (order : list nat) (fs : list factor) : Z :=
    total (fold_left (fun left x => eliminate x left) order fs) first_cell.

  Lemma is_in_spec : forall v l, is_in v l = true <-> In v l.
  Proof.
    intros v l. unfold is_in. rewrite existsb_exists. split.
    - intros [y [I E]]. apply Nat.eqb_eq in E. now subst.
    - intro I. exists v. split; auto. apply Nat.eqb_refl.
  Qed.

  Lemma total_split : forall x fs a, total fs a = total (arrived x fs) a + total (waiting x fs) a.
  Proof.
    intros x fs a. unfold total, arrived, waiting. induction fs as [|f fs IH]; simpl; auto.
    destruct (mentions x f); simpl; lia.
  Qed.

  Section Step.
    Variables (x : nat) (fs : list factor).
    Hypothesis local : forall f, In f fs -> is_local f.

    Lemma waiting_put : forall a v, total (waiting x fs) (put a x v) = total (waiting x fs) a.
    Proof.
      intros a v. apply sum_over_ext. intros f I. apply filter_In in I. destruct I as [I N].
      apply local; auto. intros y Y. apply put_other. intro. subst. apply is_in_spec in Y.
      unfold mentions in N. now rewrite Y in N.
    Qed.

    Lemma arrived_put : forall a, total (arrived x fs) (put a x (a x)) = total (arrived x fs) a.
    Proof.
      intro a. apply sum_over_ext. intros f I. apply filter_In in I. apply local; [tauto |].
      intros y _. destruct (Nat.eq_dec y x); [subst; apply put_same | now apply put_other].
    Qed.

    Lemma joined_depends : depends_on (others x (arrived x fs)) (joined x (arrived x fs)).
    Proof.
      intros a b E. unfold joined. f_equal. apply map_ext. intro v. apply sum_over_ext. intros f I.
      pose proof I as J. apply filter_In in J. apply local; [tauto |]. intros y Y.
      destruct (Nat.eq_dec y x); [subst; now rewrite !put_same |]. rewrite !put_other by auto.
      apply E. apply nodup_In, in_in_remove; auto. apply in_flat_map. eauto.
    Qed.

    Lemma eliminate_local : forall f, In f (eliminate x fs) -> is_local f.
    Proof. intros f [I|I]; [subst; apply tabulated_local | apply filter_In in I; apply local; tauto]. Qed.

    Lemma eliminate_variables : forall rest, (forall f, In f fs -> incl (variables f) (x :: rest)) ->
      forall f, In f (eliminate x fs) -> incl (variables f) rest.
    Proof.
      intros rest H f [I|I] y Y.
      - subst. apply nodup_In, in_remove in Y. destruct Y as [Y N]. apply in_flat_map in Y.
        destruct Y as [g [G Y]]. apply filter_In in G.
        destruct (H g (proj1 G) y Y); [congruence | assumption].
      - apply filter_In in I. destruct I as [I N]. destruct (H f I y Y); auto. subst.
        apply is_in_spec in Y. unfold mentions in N. now rewrite Y in N.
    Qed.

    Lemma eliminate_total : forall a, searched a ->
      total (eliminate x fs) a = joined x (arrived x fs) a + total (waiting x fs) a.
    Proof.
      intros a S. unfold eliminate, total at 1. cbn [sum_over].
      rewrite tabulated_amount; auto using joined_depends.
    Qed.

    (** To eliminate a partition does not change the maximum. *)
    Lemma eliminate_maximum : forall m, is_maximum (total (eliminate x fs)) m -> is_maximum (total fs) m.
    Proof.
      intros m [U [a [S E]]]. split.
      - intros b T. specialize (U b T). rewrite eliminate_total in U by auto. rewrite (total_split x).
        assert (total (arrived x fs) b <= joined x (arrived x fs) b); [|lia].
        apply maximum_ge, in_map_iff. exists (b x). split; [apply arrived_put | apply T].
      - rewrite eliminate_total in E by auto.
        assert (N : map (fun v => total (arrived x fs) (put a x v)) (domain x) <> [])
          by (specialize (inhabited x); destruct (domain x); easy).
        apply maximum_in, in_map_iff in N. destruct N as [v [Ev Iv]].
        exists (put a x v). split; [now apply put_searched |].
        rewrite (total_split x), waiting_put, Ev. exact E.
    Qed.
  End Step.

  (** The elimination in any order is exact. *)
  Theorem eliminated_is_maximum : forall order fs, (forall f, In f fs -> is_local f) ->
    (forall f, In f fs -> incl (variables f) order) -> is_maximum (total fs) (eliminated order fs).
  Proof.
    induction order as [|x rest IH]; intros fs L I.
    - assert (C : forall a, total fs a = eliminated [] fs)
        by (intro a; apply (total_depends [] fs L I); intros x []).
      split; [intros a _; rewrite C; lia | exists first_cell; auto using first_cell_searched].
    - apply (eliminate_maximum x fs L). apply IH; [now apply eliminate_local | now apply eliminate_variables].
  Qed.
End Search.
