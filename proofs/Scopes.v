(** * The largest load inside a scope: by brute force, and by the steps of the product.

    Both are the same number: the supremum over all records of the scope, also over those of uploads that
    nobody knows yet. The steps are those of packages/forests/grovekeeper_forests/privacy/joint_loads.py. *)

Require Import ZArith List Lia Bool Arith.
Require Import Model Maxima.
Import ListNotations.
Open Scope Z_scope.

(** [n] is the supremum of the loads of all records that a scope covers, and one of them has it. *)
Definition is_largest (ps : list partition) (bs : list box) (s : scope) (n : Z) : Prop :=
  (forall r, record ps r -> covers s r = true -> load bs r <= n) /\
  (exists r, record ps r /\ covers s r = true /\ load bs r = n).

(** ** Loads *)

Lemma covers_spec : forall s a, covers s a = true <-> forall x, allows (cells_in s x) (a x) = true.
Proof.
  intros s a. unfold covers. rewrite forallb_forall. split.
  - intros H x. destruct (le_lt_dec (length s) x) as [L|L].
    + unfold cells_in. rewrite nth_overflow; auto.
    + apply H, in_seq. lia.
  - intros H x _. apply H.
Qed.

Lemma forallb_same : forall A (f g : A -> bool) l,
  (forall x, In x l -> f x = g x) -> forallb f l = forallb g l.
Proof. induction l as [|x l IH]; simpl; intro E; auto. rewrite E, IH; auto. Qed.

Lemma load_nonnegative : forall bs r, nonnegative bs -> 0 <= load bs r.
Proof.
  intros bs r N. rewrite <- (Z.mul_0_r (Z.of_nat (length bs))), <- sum_over_constant. apply sum_over_le.
  intros b I. specialize (N b I). unfold share. destruct (covers (scope_of b) r); lia.
Qed.

Lemma load_app : forall bs cs r, load (bs ++ cs) r = load bs r + load cs r.
Proof. intros. apply sum_over_app. Qed.

Lemma load_mono : forall bs a b, nonnegative bs ->
  (forall c, In c bs -> covers (scope_of c) a = true -> covers (scope_of c) b = true) ->
  load bs a <= load bs b.
Proof.
  intros bs a b N H. apply sum_over_le. intros c I. specialize (N c I). specialize (H c I). unfold share.
  destruct (covers (scope_of c) a); [rewrite H; auto; lia |]. destruct (covers (scope_of c) b); lia.
Qed.

(** ** The cells that are searched *)

(** The cells of a partition that some box names. *)
Definition named (x : nat) (bs : list box) : list nat :=
  flat_map (fun b => match cells_in (scope_of b) x with Some cells => cells | None => [] end) bs.

(** The cells of the scope; else all declared cells; else, of uploads, those that some box names. *)
Definition known_cells (ps : list partition) (bs : list box) (inside : scope) (x : nat) : list nat :=
  match cells_in inside x, nth_error ps x with
  | Some cells, _ => cells
  | None, Some (Some cells) => cells
  | None, _ => named x bs
  end.

(** Where there is none, one cell stands for all that no box names. *)
Definition domain (ps : list partition) (bs : list box) (inside : scope) (x : nat) : list nat :=
  match known_cells ps bs inside x with [] => [0%nat] | cells => cells end.

Lemma domain_inhabited : forall ps bs inside x, domain ps bs inside x <> [].
Proof. intros. unfold domain. destruct (known_cells ps bs inside x); discriminate. Qed.

Lemma known_in_domain : forall ps bs inside x v,
  In v (known_cells ps bs inside x) -> In v (domain ps bs inside x).
Proof. intros ps bs inside x v I. unfold domain. destruct (known_cells ps bs inside x); easy. Qed.

(** A record of the scope loses at most what some searched cell loses, also if no box names its upload. *)
Lemma represented : forall ps bs inside r, nonnegative bs -> record ps r -> covers inside r = true ->
  exists a, searched (domain ps bs inside) a /\ load bs r <= load bs a.
Proof.
  intros ps bs inside r N R C. set (D := domain ps bs inside).
  exists (fun x => if in_dec Nat.eq_dec (r x) (D x) then r x else hd 0%nat (D x)). split.
  - intro x. destruct (in_dec Nat.eq_dec (r x) (D x)); auto.
    pose proof (domain_inhabited ps bs inside x) as H. fold D in H. destruct (D x); [congruence | now left].
  - apply load_mono; auto. intros b B H. rewrite covers_spec in *.
    intro x. specialize (H x). specialize (C x).
    destruct (in_dec Nat.eq_dec (r x) (D x)) as [I|I]; auto.
    destruct (cells_in (scope_of b) x) as [cells|] eqn:S; auto. exfalso. apply I, known_in_domain.
    unfold known_cells. destruct (cells_in inside x); [now apply is_in_spec |].
    assert (J : In (r x) (named x bs)).
    { apply in_flat_map. exists b. rewrite S. split; auto. now apply is_in_spec. }
    specialize (R x). destruct (nth_error ps x) as [[all|]|]; auto.
Qed.

(** ** Brute force *)

Definition width (ps : list partition) (bs : list box) (inside : scope) : nat :=
  list_max (length ps :: length inside :: map (fun b => length (scope_of b)) bs).

Definition brute_largest (ps : list partition) (bs : list box) (inside : scope) : Z :=
  brute_force (domain ps bs inside) (seq 0 (width ps bs inside)) (load bs).

Lemma width_box : forall ps bs inside b, In b bs -> (length (scope_of b) <= width ps bs inside)%nat.
Proof.
  intros ps bs inside b I. unfold width.
  pose proof (proj1 (list_max_le (length ps :: length inside :: map (fun b => length (scope_of b)) bs) _)
    (le_n _)) as F.
  rewrite Forall_forall in F. apply F. right. right. apply in_map_iff. eauto.
Qed.

Lemma load_depends : forall ps bs inside, depends_on (seq 0 (width ps bs inside)) (load bs).
Proof.
  intros ps bs inside a b E. apply sum_over_ext. intros c I. unfold share, covers.
  rewrite (forallb_same _ _ (fun x => allows (cells_in (scope_of c) x) (b x))); auto.
  intros x X. rewrite E; auto. apply in_seq in X. apply in_seq. pose proof (width_box ps bs inside c I). lia.
Qed.

Theorem brute_largest_is_maximum : forall ps bs inside,
  is_maximum (domain ps bs inside) (load bs) (brute_largest ps bs inside).
Proof. intros. apply brute_force_is_maximum; [apply domain_inhabited | apply load_depends]. Qed.

Theorem brute_largest_bounds : forall ps bs inside r,
  nonnegative bs -> record ps r -> covers inside r = true -> load bs r <= brute_largest ps bs inside.
Proof.
  intros ps bs inside r N R C. destruct (represented ps bs inside r N R C) as [a [S L]].
  destruct (brute_largest_is_maximum ps bs inside) as [U _]. specialize (U a S). lia.
Qed.

(** The number is not only a bound: some record of the scope has this load. *)
Theorem brute_largest_attained : forall ps bs inside, declared ps -> well_formed ps inside ->
  exists r, record ps r /\ covers inside r = true /\ load bs r = brute_largest ps bs inside.
Proof.
  intros ps bs inside P [W K]. destruct (brute_largest_is_maximum ps bs inside) as [_ [a [S E]]].
  exists a. split; [|split]; auto.
  - intros x all X. specialize (S x). unfold domain, known_cells in S. rewrite X in S.
    destruct (cells_in inside x) as [cells|] eqn:I.
    + pose proof (W x cells I). eapply K; eauto. destruct cells; congruence.
    + pose proof (P all (nth_error_In ps x X)). destruct all; congruence.
  - apply covers_spec. intro x. specialize (S x). unfold domain, known_cells in S.
    destruct (cells_in inside x) as [cells|] eqn:I; auto. pose proof (W x cells I). simpl. apply is_in_spec.
    destruct cells; congruence.
Qed.

(** ** The steps of the product *)

(** A sum in which at most one index counts. *)
Lemma sum_over_one : forall (f : nat -> Z) y l, NoDup l -> In y l ->
  sum_over (fun x => if Nat.eqb x y then f x else 0) l = f y.
Proof.
  induction l as [|x l IH]; simpl; intros N I; [destruct I |]. inversion N; subst.
  destruct (Nat.eqb_spec x y).
  - subst. rewrite (sum_over_ext _ (fun _ => 0)), sum_over_constant; [lia |].
    intros z Z. destruct (Nat.eqb_spec z y); congruence.
  - rewrite IH; auto. destruct I; congruence.
Qed.

Section Classes.
  Variable signature : nat -> list bool.
  Variable weight : nat -> Z.

  (** Puts a cell into its class, which keeps its fullest cell alone. *)
  Fixpoint classified (v : nat) (found : list nat) : list nat :=
    match found with
    | [] => [v]
    | u :: rest =>
        if list_eq_dec bool_dec (signature u) (signature v)
        then (if weight u <? weight v then v else u) :: rest else u :: classified v rest
    end.

  Definition fullest (cells : list nat) : list nat := fold_right classified [] cells.

  (** A cell of the same class that is at least as full. *)
  Definition represents (u v : nat) : Prop := signature u = signature v /\ weight v <= weight u.

  Lemma classified_from : forall v found u, In u (classified v found) -> u = v \/ In u found.
  Proof.
    induction found as [|c found IH]; simpl; intros u I; [intuition |].
    destruct (list_eq_dec bool_dec (signature c) (signature v)).
    - destruct (weight c <? weight v); destruct I; auto.
    - destruct I as [I|I]; auto. destruct (IH u I); auto.
  Qed.

  Lemma classified_represents : forall v found t, t = v \/ In t found ->
    exists u, In u (classified v found) /\ represents u t.
  Proof.
    unfold represents. induction found as [|c found IH]; simpl; intros t T.
    - exists v. destruct T as [T|[]]. subst. split; [now left | split; [reflexivity | lia]].
    - destruct (list_eq_dec bool_dec (signature c) (signature v)) as [E|E].
      + assert (J : t = v \/ t = c \/ In t found) by intuition. destruct J as [J|[J|J]].
        3: { exists t. simpl. split; [now right | split; [reflexivity | lia]]. }
        all: subst t; destruct (Z.ltb_spec (weight c) (weight v));
          [exists v | exists c]; (split; [now left |]); split; auto; lia.
      + assert (J : t = c \/ t = v \/ In t found) by intuition. destruct J as [J|J].
        * subst. exists c. split; [now left | split; [reflexivity | lia]].
        * destruct (IH t J) as [u [I H]]. exists u. split; [now right | exact H].
  Qed.

  Lemma fullest_from : forall cells, incl (fullest cells) cells.
  Proof.
    induction cells as [|v cells IH]; simpl; intros u I; [destruct I |].
    apply classified_from in I. destruct I as [I|I]; [now left | right; now apply IH].
  Qed.

  Lemma fullest_represents : forall cells t, In t cells -> exists u, In u (fullest cells) /\ represents u t.
  Proof.
    induction cells as [|v cells IH]; simpl; intros t T; [destruct T |].
    assert (exists s, (s = v \/ In s (fullest cells)) /\ represents s t) as [s [I [S L]]].
    { destruct T as [T|T]; [exists v; subst; split; [now left | split; [reflexivity | lia]] |].
      destruct (IH t T) as [s [I H]]. exists s. auto. }
    destruct (classified_represents v (fullest cells) s I) as [u [J [S' L']]].
    exists u. split; [exact J | split; [congruence | lia]].
  Qed.
End Classes.

Section Steps.
  Variable D : nat -> list nat.               (** the searched cells of each partition *)
  Hypothesis inhabited : forall x, D x <> [].
  Variable bs : list box.

  (** Whether a box has a searched cell in every partition. *)
  Definition meets (b : box) : bool :=
    forallb (fun x => existsb (allows (cells_in (scope_of b) x)) (D x)) (seq 0 (length (scope_of b))).

  (** Whether a box leaves out a searched cell of a partition. *)
  Definition restricts (b : box) (x : nat) : bool := negb (forallb (allows (cells_in (scope_of b) x)) (D x)).
  Definition restricted (b : box) : list nat := filter (restricts b) (seq 0 (length (scope_of b))).

  Definition is_unrestricted (b : box) : bool :=
    meets b && match restricted b with [] => true | _ => false end.
  Definition is_single (x : nat) (b : box) : bool :=
    meets b && match restricted b with [y] => Nat.eqb x y | _ => false end.
  Definition is_coupled (b : box) : bool :=
    meets b && match restricted b with _ :: _ :: _ => true | _ => false end.

  Definition sum_where (test : box -> bool) : Z := sum_over (fun b => if test b then amount b else 0) bs.

  (** Step 1: boxes outside the scope go; amounts on boxes that restrict one partition add up cell by cell. *)
  Definition unrestricted : Z := sum_where is_unrestricted.
  Definition single (x v : nat) : Z :=
    sum_where (fun b => is_single x b && allows (cells_in (scope_of b) x) v).
  Definition coupled : list box := filter is_coupled bs.

  (** Step 2: cells that the same coupled boxes cover form a class; its fullest cell stands for it. *)
  Definition signature (x v : nat) : list bool :=
    map (fun b => allows (cells_in (scope_of b) x) v) coupled.
  Definition classes (x : nat) : list nat := fullest (signature x) (single x) (D x).

  (** Step 3: elimination over the classes. *)
  Definition single_factor (x : nat) : factor := Factor [x] (fun a => single x (a x)).
  Definition coupled_factor (b : box) : factor :=
    Factor (restricted b) (fun a =>
      if forallb (fun x => allows (cells_in (scope_of b) x) (a x)) (restricted b) then amount b else 0).
  Definition factors (xs : list nat) : list factor := map single_factor xs ++ map coupled_factor coupled.
  Definition by_steps (xs order : list nat) : Z := unrestricted + eliminated classes order (factors xs).

  Lemma covers_restricted : forall b a, searched D a ->
    covers (scope_of b) a = forallb (fun x => allows (cells_in (scope_of b) x) (a x)) (restricted b).
  Proof.
    intros b a S. apply eq_iff_eq_true. unfold covers, restricted. rewrite !forallb_forall. split.
    - intros H x I. apply filter_In in I. apply H. tauto.
    - intros H x I. destruct (restricts b x) eqn:R; [apply H, filter_In; auto |].
      apply negb_false_iff in R. rewrite forallb_forall in R. apply R, S.
  Qed.

  Lemma meets_covered : forall b a, searched D a -> meets b = false -> covers (scope_of b) a = false.
  Proof.
    intros b a S M. apply not_true_iff_false. intro C. apply not_true_iff_false in M.
    apply M, forallb_forall. intros x _. apply existsb_exists. exists (a x). rewrite covers_spec in C. auto.
  Qed.

  Lemma share_split : forall xs b a, searched D a -> NoDup xs -> incl (restricted b) xs ->
    share a b = (if is_unrestricted b then amount b else 0)
      + sum_over (fun x => if is_single x b && allows (cells_in (scope_of b) x) (a x) then amount b else 0) xs
      + (if is_coupled b then share a b else 0).
  Proof.
    intros xs b a S N I. unfold share, is_unrestricted, is_single, is_coupled.
    destruct (meets b) eqn:M; simpl.
    2: { rewrite sum_over_constant, meets_covered by auto. lia. }
    rewrite covers_restricted by auto. destruct (restricted b) as [|y [|z l]]; simpl.
    - rewrite sum_over_constant. lia.
    - rewrite (sum_over_ext _ (fun x =>
        if Nat.eqb x y then if allows (cells_in (scope_of b) x) (a x) then amount b else 0 else 0)).
      2: { intros x _. now destruct (Nat.eqb x y). }
      rewrite sum_over_one by (auto; apply I; now left). rewrite andb_true_r. lia.
    - rewrite sum_over_constant. lia.
  Qed.

  Lemma load_split : forall xs a, searched D a -> NoDup xs -> (forall b, In b bs -> incl (restricted b) xs) ->
    load bs a = unrestricted + total (factors xs) a.
  Proof.
    intros xs a S N I. unfold load. rewrite (sum_over_ext _ _ bs (fun b J => share_split xs b a S N (I b J))).
    rewrite !sum_over_add, <- sum_over_swap. unfold total, factors, coupled.
    rewrite sum_over_app, !sum_over_map, sum_over_filter, Z.add_assoc. f_equal.
    apply sum_over_ext. intros b _. unfold share. now rewrite covers_restricted.
  Qed.

  Lemma factors_local : forall xs f, In f (factors xs) -> is_local f.
  Proof.
    intros xs f I. apply in_app_or in I.
    destruct I as [I|I]; apply in_map_iff in I; destruct I as [z [E _]]; subst; intros a b H; simpl in *.
    - now rewrite H by auto.
    - rewrite (forallb_same _ _ (fun x => allows (cells_in (scope_of z) x) (b x))); auto.
  Qed.

  Lemma factors_variables : forall xs f, (forall b, In b bs -> incl (restricted b) xs) ->
    In f (factors xs) -> incl (variables f) xs.
  Proof.
    intros xs f H I. apply in_app_or in I.
    destruct I as [I|I]; apply in_map_iff in I; destruct I as [z [E J]]; subst; simpl.
    - intros y [Y|[]]. now subst.
    - apply filter_In in J. apply H. tauto.
  Qed.

  Lemma classes_inhabited : forall x, classes x <> [].
  Proof.
    intros x E. specialize (inhabited x). destruct (D x) as [|v cells] eqn:Q; [congruence |].
    destruct (fullest_represents (signature x) (single x) (D x) v) as [u [I _]]; [rewrite Q; now left |].
    unfold classes in E. rewrite E in I. destruct I.
  Qed.

  (** The cell that stands for a cell: the kept one of its class. *)
  Definition stand_in (x v : nat) : nat :=
    match find (fun u => if list_eq_dec bool_dec (signature x u) (signature x v)
                         then single x v <=? single x u else false) (classes x)
    with Some u => u | None => v end.

  Lemma stand_in_spec : forall x v, In v (D x) ->
    In (stand_in x v) (classes x) /\ represents (signature x) (single x) (stand_in x v) v.
  Proof.
    intros x v I. unfold stand_in. destruct (find _ (classes x)) as [u|] eqn:F.
    - apply find_some in F. destruct F as [J E]. split; auto.
      destruct (list_eq_dec bool_dec _ _); [split; auto; now apply Z.leb_le | discriminate].
    - exfalso. destruct (fullest_represents (signature x) (single x) (D x) v I) as [u [J [S L]]].
      pose proof (find_none _ _ F u J) as Q. simpl in Q.
      destruct (list_eq_dec bool_dec _ _); [|contradiction].
      apply Z.leb_gt in Q. lia.
  Qed.

  (** Cells of one class are in the same coupled boxes. *)
  Lemma same_class : forall x u v b, signature x u = signature x v -> In b coupled ->
    allows (cells_in (scope_of b) x) u = allows (cells_in (scope_of b) x) v.
  Proof. intros x u v b E I. exact (ext_in_map E b I). Qed.

  Lemma factors_represented : forall xs a c, (forall x, represents (signature x) (single x) (c x) (a x)) ->
    total (factors xs) a <= total (factors xs) c.
  Proof.
    intros xs a c H. unfold total, factors. rewrite !sum_over_app, !sum_over_map. simpl.
    apply Z.add_le_mono; [apply sum_over_le; intros x _; apply H |].
    apply Z.eq_le_incl, sum_over_ext. intros b I.
    rewrite (forallb_same _ _ (fun x => allows (cells_in (scope_of b) x) (c x))); auto.
    intros x _. symmetry. apply same_class; [apply H | exact I].
  Qed.

  Theorem by_steps_is_maximum : forall xs order, NoDup xs -> incl xs order ->
    (forall b, In b bs -> incl (restricted b) xs) -> is_maximum D (load bs) (by_steps xs order).
  Proof.
    intros xs order N O I.
    assert (K : forall a, searched classes a -> searched D a) by (intros a S x; eapply fullest_from, S).
    destruct (eliminated_is_maximum classes classes_inhabited order (factors xs)) as [U [a [S E]]].
    - apply factors_local.
    - intros f F. eapply incl_tran; [apply factors_variables; eauto | exact O].
    - unfold by_steps. split.
      + intros b T. rewrite (load_split xs) by auto. specialize (U (fun x => stand_in x (b x))).
        pose proof (factors_represented xs b (fun x => stand_in x (b x))
          (fun x => proj2 (stand_in_spec x (b x) (T x)))).
        assert (searched classes (fun x => stand_in x (b x))) by (intro x; apply stand_in_spec, T).
        specialize (U H0). lia.
      + exists a. split; auto. rewrite (load_split xs) by auto. lia.
  Qed.
End Steps.

(** The number of the product, for any order of elimination that contains all partitions. *)
Definition largest_in (order : list nat) (ps : list partition) (bs : list box) (inside : scope) : Z :=
  by_steps (domain ps bs inside) bs (seq 0 (width ps bs inside)) order.

Definition largest (ps : list partition) (bs : list box) (inside : scope) : Z :=
  largest_in (seq 0 (width ps bs inside)) ps bs inside.

Theorem largest_in_exact : forall order ps bs inside, incl (seq 0 (width ps bs inside)) order ->
  largest_in order ps bs inside = brute_largest ps bs inside.
Proof.
  intros order ps bs inside O. apply (is_maximum_unique (domain ps bs inside) (load bs)).
  - apply by_steps_is_maximum; auto using domain_inhabited, seq_NoDup.
    intros b I x R. apply filter_In in R. destruct R as [R _]. apply in_seq in R. apply in_seq.
    pose proof (width_box ps bs inside b I). lia.
  - apply brute_largest_is_maximum.
Qed.

Theorem largest_exact : forall ps bs inside, largest ps bs inside = brute_largest ps bs inside.
Proof. intros. apply largest_in_exact, incl_refl. Qed.

Theorem largest_bounds : forall ps bs inside r, nonnegative bs -> record ps r -> covers inside r = true ->
  load bs r <= largest ps bs inside.
Proof. intros. rewrite largest_exact. now apply brute_largest_bounds. Qed.

Theorem largest_is_largest : forall ps bs inside, declared ps -> nonnegative bs -> well_formed ps inside ->
  is_largest ps bs inside (largest ps bs inside).
Proof.
  intros ps bs inside P N W. split; [intros r R C; now apply largest_bounds |].
  rewrite largest_exact. now apply brute_largest_attained.
Qed.

Lemma share_le_load : forall bs b r, nonnegative bs -> In b bs -> share r b <= load bs r.
Proof.
  intros bs b r N I. apply in_split in I. destruct I as [before [after E]]. subst.
  assert (0 <= load before r) by (apply load_nonnegative; intros c J; apply N, in_or_app; now left).
  assert (0 <= load after r) by (apply load_nonnegative; intros c J; apply N, in_or_app; right; now right).
  rewrite load_app. unfold load in *. simpl. lia.
Qed.

(** ** The guard: where the search takes too long, boxes give way to wider ones, and the answer only grows *)
Theorem wider_bounds : forall ps bs (widened : box -> box) inside r,
  nonnegative bs -> record ps r -> covers inside r = true ->
  (forall b, In b bs -> amount (widened b) = amount b /\
     (forall a, covers (scope_of b) a = true -> covers (scope_of (widened b)) a = true)) ->
  load bs r <= largest ps (map widened bs) inside.
Proof.
  intros ps bs widened inside r N R C W. apply Z.le_trans with (load (map widened bs) r).
  - unfold load. rewrite sum_over_map. apply sum_over_le. intros b I. specialize (N b I).
    destruct (W b I) as [A H]. specialize (H r). unfold share. rewrite A.
    destruct (covers (scope_of b) r); [rewrite H by auto; lia |].
    destruct (covers (scope_of (widened b)) r); lia.
  - apply largest_bounds; auto. intros c I. apply in_map_iff in I. destruct I as [b [E I]]. subst.
    destruct (W b I) as [A _]. rewrite A. now apply N.
Qed.
