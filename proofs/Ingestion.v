(** * What is stored of uploads: neighbours stay neighbours, and a unit keeps at most k rows.

    Rows arrive over all uploads in one order.
    A row belongs to the unit that the canonical form of its cell names. It
    is stored if the admission book has fewer than k rows of that unit.
    An erasure may free the places of an upload
    that no release depends on: its rows leave the book. So the book has the rows on which releases depend. *)

Require Import List Lia Bool Arith.
Require Import Model Jobs Filter.
Import ListNotations.

(** A map of single rows to at most one row each, such as clipping, keeps neighbours (L6). *)
Definition record_wise {A B} (g : A -> option B) (d : list A) : list B :=
  flat_map (fun x => match g x with Some y => [y] | None => [] end) d.

Lemma record_wise_added : forall A B (g : A -> option B) xs d d', added xs d d' ->
  added (record_wise g xs) (record_wise g d) (record_wise g d') /\ length (record_wise g xs) <= length xs.
Proof.
  unfold record_wise. intros A B g xs d d' H.
  induction H as [d|x xs d d1 d2 H [IH L]]; [split; [constructor | simpl; lia]|].
  rewrite flat_map_app in *. simpl.
  destruct (g x); simpl; [split; [now constructor | lia] | split; [exact IH | lia]].
Qed.

Lemma added_cons : forall A (x : A) xs d d', added xs d d' -> added xs (x :: d) (x :: d').
Proof.
  intros A x xs d d' H. induction H as [d|y xs d d1 d2 H IH]; [constructor|].
  now apply (one_more y xs (x :: d) (x :: d1) d2).
Qed.

(** A list is its rows of one kind, and at their places those of the other kind. *)
Lemma added_kind : forall A (is_kind : A -> bool) l,
  added (filter is_kind l) (filter (fun x => negb (is_kind x)) l) l.
Proof.
  induction l as [|x l IH]; simpl; [constructor|].
  destruct (is_kind x); simpl; [exact (one_more x _ _ [] l IH) | now apply added_cons].
Qed.

Section Ingestion.
  Context {row : Type} (unit_of : row -> option nat) (upload_of : row -> nat) (k : nat).

  Inductive happening := Arrive (x : row) | Free (upload : nat).

  Definition is_of (u : nat) (x : row) : bool :=
    match unit_of x with Some v => Nat.eqb v u | None => false end.
  Definition places (u : nat) (book : list row) : nat := length (filter (is_of u) book).

  Definition after (book : list row) (e : happening) : list row :=
    match e with
    | Arrive x => match unit_of x with
                  | Some u => if places u book <? k then x :: book else book
                  | None => book              (* a row without a value is dropped *)
                  end
    | Free upload => filter (fun x => negb (Nat.eqb (upload_of x) upload)) book
    end.
  Definition book_after (es : list happening) : list row := fold_left after es [].

  Lemma filter_shorter : forall (f g : row -> bool) l, length (filter f (filter g l)) <= length (filter f l).
  Proof. induction l as [|x l IH]; simpl; [lia|]. destruct (g x); simpl; destruct (f x); simpl; lia. Qed.

  (** No unit has more than k rows in the book, whatever happens. *)
  Lemma at_most_k_places : forall u es, places u (book_after es) <= k.
  Proof.
    intros u es. unfold book_after. assert (Start : places u [] <= k) by (unfold places; simpl; lia).
    revert Start.
    generalize (@nil row). induction es as [|e es IH]; intros book H; [exact H|]. simpl. apply IH.
    destruct e as [x|f]; simpl.
    - destruct (unit_of x) as [v|] eqn:E; [|exact H].
      destruct (Nat.ltb_spec (places v book) k) as [L|L]; [|exact H].
      unfold places in *. simpl. unfold is_of at 1. rewrite E.
      destruct (Nat.eqb_spec v u); [subst; simpl; lia | exact H].
    - unfold places in *.
      pose proof (filter_shorter (is_of u) (fun x => negb (Nat.eqb (upload_of x) f)) book). lia.
  Qed.

  Definition others (u : nat) (l : list row) : list row := filter (fun x => negb (is_of u x)) l.

  (** Rows of one unit change nothing that is decided about other units. *)
  Lemma step_of_others : forall u book e, others u (after book e) =
    match e with Arrive x => if is_of u x then others u book else after (others u book) e
               | Free _ => after (others u book) e end.
  Proof.
    intros u book [x|f]; simpl.
    - unfold is_of at 1. destruct (unit_of x) as [v|] eqn:E; [|reflexivity].
      assert (Same : v <> u -> places v (others u book) = places v book).
      { intro N. unfold places, others. f_equal. induction book as [|y l IH]; simpl; [reflexivity|].
        destruct (is_of u y) eqn:U; simpl; rewrite ?IH; [|reflexivity]. unfold is_of in U at 1.
        unfold is_of at 2.
        destruct (unit_of y) as [z|]; [|discriminate]. apply Nat.eqb_eq in U. subst z.
        destruct (Nat.eqb_spec u v); [congruence | reflexivity]. }
      destruct (Nat.eqb_spec v u) as [Q|Q].
      + destruct (_ <? k); [|reflexivity]. simpl. unfold is_of at 1. rewrite E. subst.
        now rewrite Nat.eqb_refl.
      + rewrite Same by exact Q. destruct (_ <? k); [|reflexivity]. simpl. unfold is_of at 1. rewrite E.
        destruct (Nat.eqb_spec v u); [contradiction | reflexivity].
    - unfold others. induction book as [|y l IH]; simpl; [reflexivity|].
      destruct (Nat.eqb (upload_of y) f) eqn:F, (is_of u y) eqn:U; simpl; rewrite ?U, ?F; simpl;
        now rewrite ?IH.
  Qed.

  (** The same uploads without a unit's rows. *)
  Definition without (u : nat) (es : list happening) : list happening :=
    filter (fun e => match e with Arrive x => negb (is_of u x) | Free _ => true end) es.

  Lemma others_of_book : forall u es, others u (book_after es) = book_after (without u es).
  Proof.
    intros u es. unfold book_after. assert (Start : others u [] = []) by reflexivity. rewrite <- Start at 2.
    generalize (@nil row). induction es as [|e es IH]; intro book; [reflexivity|]. simpl fold_left at 1.
    rewrite IH, step_of_others.
    destruct e as [x|f]; simpl; [|reflexivity]. now destruct (is_of u x).
  Qed.

  (** With a unit and without it, the books differ in at most k rows, all of that unit. *)
  Theorem books_are_neighbours : forall u es, exists xs, length xs <= k /\ (forall x, In x xs ->
    unit_of x = Some u) /\
    added xs (book_after (without u es)) (book_after es).
  Proof.
    intros u es. exists (filter (is_of u) (book_after es)). split; [apply at_most_k_places|]. split.
    - intros x I. apply filter_In in I. destruct I as [_ I]. unfold is_of in I.
      destruct (unit_of x); [|discriminate].
      apply Nat.eqb_eq in I. now subst.
    - rewrite <- others_of_book. apply added_kind.
  Qed.
End Ingestion.
