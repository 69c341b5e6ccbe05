(** * Examples: what the theorems speak of exists, and their bounds are reached. *)

Require Import ZArith List Bool Reals Lra.
Require Import Model Jobs Scopes Decisions.
Import ListNotations.
Open Scope Z_scope.

(** ** Loads: two shards, and three regions *)

Definition two : list partition := [Some [0; 1]%nat; Some [0; 1; 2]%nat].
Definition shard0 : scope := [Some [0%nat]; None].
Definition shard1 : scope := [Some [1%nat]; None].
Definition region1 : scope := [None; Some [1%nat]].

(** Whoever is in the shard and in the region loses both amounts. *)
Example amounts_meet : largest two [Box shard0 3; Box region1 3] [] = 6.
Proof. reflexivity. Qed.
Example shards_do_not_meet : largest two [Box shard0 3; Box shard1 3] [] = 3.
Proof. reflexivity. Qed.
(** An upload that no scope names loses what was read of all uploads, at most. *)
Example an_upload_to_come : largest [None] [Box [Some [7%nat]] 4; Box [] 1] [] = 5.
Proof. reflexivity. Qed.

(** ** An account with a cap of 5 *)

Definition after_two := run (largest two) (opened 5) [Reserve 1 (Box shard0 3); Reserve 2 (Box region1 2)].
Definition then_asked (e : entry) : bool :=
  match after_two with
  | Some st => match apply (largest two) st e with Some _ => true | None => false end
  | None => false
  end.

Example refused_where_both_are : then_asked (Reserve 3 (Box region1 1)) = false.
Proof. reflexivity. Qed.
Example admitted_elsewhere : then_asked (Reserve 3 (Box shard1 3)) = true.
Proof. reflexivity. Qed.
Example charged_and_given_back :
  then_asked (Charge 1 (Box shard0 3)) = true /\ then_asked (Void 2 (Box region1 2)) = true.
Proof. split; reflexivity. Qed.
(** A charge needs its own reservation: another amount is none. *)
Example not_charged : then_asked (Charge 1 (Box shard0 2)) = false.
Proof. reflexivity. Qed.

(** ** A population with a cap of 5: the second dataset joins late *)

Definition joined is_pure := history (fun _ => two) largest is_pure (opened_world (fun _ => 4) 5)
  [Join 0; Own 0 (Reserve 1 (Box shard0 3)); Own 1 (Reserve 1 (Box [] 1)); Join 1].
Definition together_after (a : act) : option Z :=
  match joined false with
  | Some w => option_map together (step (fun _ => two) largest false w a)
  | None => None
  end.

Example the_sum_fits : together_after (Own 1 (Reserve 2 (Box shard0 1))) = Some 5.
Proof. reflexivity. Qed.
Example the_sum_does_not_fit : together_after (Own 1 (Reserve 2 (Box shard0 2))) = None.
Proof. reflexivity. Qed.
Example disjoint_cells_count_once : together_after (Own 0 (Reserve 2 (Box shard1 3))) = Some 4.
Proof. reflexivity. Qed.

(** A late member's highest cap raises that of the population, but in ε, where the sum itself is printed. *)
Example a_late_join_raises : option_map population_highest (joined false) = Some 9.
Proof. reflexivity. Qed.
Example a_late_join_in_epsilon :
  option_map (fun w => (population_highest w, printed true w)) (joined true) = Some (5, 5).
Proof. reflexivity. Qed.

(** ** An honest analyst, for whom the filter's bound is reached *)

Open Scope R_scope.

(** Whether the number of rows is even, told with a lie in one of three cases. *)
Definition is_even (d : list bool) (o : bool) : R := if xorb o (Nat.even (length d)) then 1 / 3 else 2 / 3.
Definition asks_once : @strategy entry (list bool) bool := fun h =>
  match h with [] => Write (Reserve 1 (Box [] 1)) | _ => Start (Charge 1 (Box [] 1)) is_even end.

Lemma is_even_private : private (ln 2) is_even.
Proof.
  assert (E : exp (ln 2) = 2) by (apply exp_ln; lra).
  split; intros; unfold close, is_even; rewrite ?E;
    repeat match goal with |- context [if ?x then _ else _] => destruct x end; lra.
Qed.

Example asks_once_is_honest : honest (ln 2) 1 (fun _ _ => 0%nat) asks_once.
Proof.
  intros h q law E. unfold asks_once in E. destruct h; [discriminate|]. injection E as Q L. subst.
  exists 1%nat, (Box [] 1). split; [reflexivity|].
  exists (ln 2), is_even. split; [|split; [exact is_even_private|]].
  - rewrite <- ln_1. left. apply ln_increasing; lra.
  - split; [simpl; lra|]. intros d o. f_equal. induction d as [|x d IH]; [reflexivity|].
    cbn in *. now rewrite <- IH.
Qed.

(** One row more doubles the chance, and e^(ln 2 · the cap of 1) is 2. *)
Example the_bound_is_reached : let w := [Answer true; Release false] in
  chance (apply (largest [])) asks_once (opened 1) [] [true] w =
  exp (ln 2 * IZR 1) * chance (apply (largest [])) asks_once (opened 1) [] [] w.
Proof. rewrite Rmult_1_r, exp_ln by lra. cbn. unfold is_even. simpl. lra. Qed.
