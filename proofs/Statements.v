(** * What is proved of the ledger. The definitions stand in Model.v and Jobs.v, and where a section says.
    FurtherStatements.v states what is proved of units, mechanisms and what is stored. *)

Require Import ZArith List Reals.
Require Import Model Jobs Scopes Ledger Decisions Populations Filter People Moments.
Import ListNotations.
Open Scope Z_scope.

(** ** The largest load of a scope, as the product computes it *)
(** Read in Scopes.v: [is_largest], [largest], [largest_in], [brute_largest]; in Decisions.v: [guarded]. *)
(** It is the supremum over all records of the scope, also over those of uploads that nobody knows yet. *)
Theorem largest_is_the_supremum : forall ps bs inside,
  declared ps -> nonnegative bs -> well_formed ps inside ->
  is_largest ps bs inside (largest ps bs inside).
Proof. exact largest_is_largest. Qed.
(** Its steps give what brute force over joint cells gives, in any order of elimination. *)
Theorem steps_equal_brute_force : forall order ps bs inside, incl (seq 0 (width ps bs inside)) order ->
  largest_in order ps bs inside = brute_largest ps bs inside.
Proof. exact largest_in_exact. Qed.
(** Where the search takes too long, the guard's wider boxes bound the load of every record. *)
Theorem guard_is_sound : forall widened, is_guard widened -> forall ps bs inside r,
  nonnegative bs -> record ps r -> covers inside r = true -> load bs r <= guarded widened ps bs inside.
Proof. exact guarded_bounds. Qed.

Section Statements.
  (** The guard may widen boxes, or none. The partitions are declared. The state is one that was written:
      Decisions.v, [guard] to [written_world]. *)
  Variables (widened : guard) (guards : is_guard widened).
  Variables (ps : list partition) (known : declared ps) (st : state) (is_written : written widened ps st).
  Let is_sound := written_is_sound widened ps st guards is_written.

  (** ** An account *)
  (** At every prefix [p] of what is written, for every record: nothing is negative, what is charged and
      reserved is at most the highest cap, and what is charged never falls. *)
  Theorem no_record_is_overdrawn : forall c es st',
    0 <= c -> run (guarded widened ps) (opened c) es = Some st' ->
    forall p q, es = p ++ q -> forall r, record ps r -> 0 <= spent p r /\ 0 <= pending p r /\
    spent p r + pending p r <= highest_of c p /\ spent p r <= spent es r.
  Proof. exact (never_overdrawn ps _ (guarded_bounds widened guards ps)). Qed.
  (** The exact search, [largest], admits a request if and only if it fits for every record that its scope
      covers. The guard, and what else may refuse, refuse more and never less. *)
  Theorem admitted_iff_it_fits_everywhere : forall job b, well_formed ps (scope_of b) ->
    (exists st', apply (largest ps) st (Reserve job b) = Some st') <-> 0 < amount b /\
    forall r, record ps r -> covers (scope_of b) r = true -> load (boxes st) r + amount b <= cap st.
  Proof. exact (admitted_iff_fits ps known st is_sound). Qed.
  (** Each refusal of the exact search has a record that would be over the cap. *)
  Theorem refusal_names_a_record : forall job b, well_formed ps (scope_of b) -> 0 < amount b ->
    apply (largest ps) st (Reserve job b) = None ->
    exists r, record ps r /\ covers (scope_of b) r = true /\ cap st < load (boxes st) r + amount b.
  Proof. exact (refused_has_reason ps known st is_sound). Qed.
  (** Where [kept_bound] (Decisions.v) shows that a request fits, the exact search admits it, too. *)
  Theorem kept_bound_decides_the_same : forall narrowest n job b, well_formed ps (scope_of b) ->
    (forall d, In d (boxes st) -> (narrowest d < n)%nat) -> 0 < amount b ->
    kept_bound narrowest n (boxes st) + amount b <= cap st ->
    exists st', apply (largest ps) st (Reserve job b) = Some st'.
  Proof. exact (kept_bound_decides ps known st is_sound). Qed.
  (** If no record is in two parts of a job, the job is admitted if and only if each part is, alone. *)
  Theorem disjoint_parts_are_decided_alone : forall parts,
    (forall p, In p parts -> well_formed ps (scope_of (snd p))) ->
    ForallOrdPairs (fun p q => disjoint (snd p) (snd q)) parts ->
    (exists st', admit (largest ps) st parts = Some st') <->
    (forall p, In p parts -> exists st', apply (largest ps) st (Reserve (fst p) (snd p)) = Some st').
  Proof. intro parts. exact (parts_alone ps known parts st is_sound). Qed.

  (** A dataset continues an erased one outside a population: who was in both lost at most the highest cap.
      As a filter against analysts, this is proved for members of a population alone. *)
  Theorem continued_dataset_is_not_overdrawn : forall erased n h c es st',
    (forall r, load (boxes erased) r <= n) -> 0 <= c ->
    run (guarded widened ps) (opened c) (Opening n h :: es) = Some st' ->
    forall r r', record ps r' -> load (boxes erased) r + (load (boxes st') r' - n) <= highest_cap st'.
  Proof. exact (continued_within_highest widened ps guards). Qed.

  (** ** A population, with late joins, continued datasets and changes of caps *)
  Variables (partitions : nat -> list partition) (all_known : forall i, declared (partitions i)).
  Variable is_pure : bool.                (** the two rules for late joins, and for what is printed *)
  Variables (w : world) (w_is_written : written_world widened partitions is_pure w).
  Let bounds := guarded_bounds widened guards.
  Let some_records i := some_record (partitions i) (all_known i).
  Let w_is_sound := written_world_is_sound widened partitions is_pure w guards all_known w_is_written.
  (** No person has lost more than the members carry together, and they carry at most what is printed. *)
  Theorem no_person_is_overdrawn :
    (forall p, person partitions p -> loss w p <= together w <= printed is_pure w) /\
    (forall i r, record (partitions i) r -> load (boxes (account w i)) r <= highest_cap (account w i)).
  Proof. exact (population_never_overdrawn _ _ w w_is_sound). Qed.
  (** After an admission in a member, no person has lost more than the cap in force; of refusals, nothing. *)
  Theorem admission_keeps_the_cap_of_a_population : forall i job b w' p, In i (members w) ->
    step partitions (guarded widened) is_pure w (Own i (Reserve job b)) = Some w' ->
    person partitions p -> loss w' p <= population_cap w'.
  Proof. exact (admitted_within_population_cap _ _ _ bounds some_records w w_is_sound). Qed.

  (** ** Privacy filters: what decides about requests holds back adaptive analysts. Read Jobs.v *)
  (** An amount is in steps of [unit]. The unit of privacy has up to [k] rows [xs]: [d'] has them, [d] not. *)
  Variables (row outcome : Type) (outcomes : list outcome).
  Variables (unit alpha : R) (not_negative : (0 <= unit)%R) (rising : (0 <= order alpha)%R).
  Section Ledger.
    Variables (cell_of : row -> joint_cell) (rows_are_records : forall x, record ps (cell_of x)).
    Variables (k : nat) (some : (0 < k)%nat) (s : @strategy entry (list row) outcome).
    Let advance := apply (guarded widened ps).
    (** An analyst asks [apply] for anything, by all that was seen. No set of transcripts is more probable,
        with the unit or without, than by the factor e^(highest cap that they reach). *)
    Theorem ledger_is_a_privacy_filter : honest unit k cell_of s ->
      forall c xs d d' highest ws, 0 <= c -> (length xs <= k)%nat -> added xs d d' ->
      (forall w, In w ws -> highest_cap (reached advance s (opened c) [] w) <= highest) ->
      close (unit * IZR highest)
        (sum_of (chance advance s (opened c) [] d) ws) (sum_of (chance advance s (opened c) [] d') ws).
    Proof. now apply (ledger_filter ps _ (bounds ps)). Qed.
    (** In ε, what loads came to is a limit, too: an account may print the larger of it and of its cap. *)
    Theorem loads_are_a_limit_in_epsilon : honest unit k cell_of s ->
      forall c xs d d' most ws, 0 <= c -> (length xs <= k)%nat -> added xs d d' -> 0 <= most ->
      (forall w, In w ws -> forall r, record ps r ->
        load (boxes (reached advance s (opened c) [] w)) r <= most) ->
      close (unit * IZR most)
        (sum_of (chance advance s (opened c) [] d) ws) (sum_of (chance advance s (opened c) [] d') ws).
    Proof. now apply (ledger_filter_by_load ps _ (bounds ps)). Qed.
    (** In ρ, for finitely many outcomes of positive chance: if no transcript of [n] events reaches more than
        [highest], the moment of all of them, of order [alpha], is at most that of the ρ of [highest]. *)
    Theorem ledger_is_a_filter_in_rho : zcdp_jobs outcomes alpha unit k cell_of s ->
      forall c xs d d' highest n, 0 <= c -> (length xs <= k)%nat -> added xs d d' ->
      (forall w, In w (transcripts_of advance outcomes s (opened c) [] n) ->
        highest_cap (reached advance s (opened c) [] w) <= highest) ->
      (moment_of advance outcomes alpha s (opened c) [] d d' n <= exp (order alpha * (unit * IZR highest)))%R.
    Proof. now apply (ledger_filter_in_rho ps _ (bounds ps)). Qed.
  End Ledger.

  (** An analyst asks [step] for anything. The same holds, with the limit that is printed, for a person with
      up to [k i] rows in each of some [datasets], if the population counts these in the end. *)
  Variable cell_of : nat -> row -> joint_cell.
  Variable all_are_records : forall i x, record (partitions i) (cell_of i x).
  Variables (k : nat -> nat) (some : forall i, (0 < k i)%nat) (s : @strategy act (nat -> list row) outcome).
  Variables (xs : nat -> list row) (few : forall i, (length (xs i) <= k i)%nat).
  Variables (datasets : list nat) (differ : NoDup datasets) (all : forall i, xs i <> [] -> In i datasets).
  Variables (caps : nat -> Z) (c : Z) (caps_fit : forall i, 0 <= caps i) (c_fits : 0 <= c).
  Variables (d d' : nat -> list row) (neighbours : forall i, added (xs i) (d i) (d' i)).
  Let advance := step partitions (guarded widened) is_pure.
  Let start := opened_world caps c.
  Let ends_within (highest : Z) (final : world) : Prop :=
    incl datasets (counted final) /\ printed is_pure final <= highest.
  Theorem population_is_a_privacy_filter : honest_in_world unit k cell_of s -> forall highest ws,
    (forall w, In w ws -> ends_within highest (reached advance s start [] w)) ->
    close (unit * IZR highest)
      (sum_of (chance advance s start [] d) ws) (sum_of (chance advance s start [] d') ws).
  Proof.
    intros. now apply (population_filter partitions _ _ bounds some_records cell_of _ k) with xs datasets.
  Qed.
  Theorem population_is_a_filter_in_rho : zcdp_in_world outcomes alpha unit k cell_of s -> forall highest n,
    (forall w, In w (transcripts_of advance outcomes s start [] n) ->
      ends_within highest (reached advance s start [] w)) ->
    (moment_of advance outcomes alpha s start [] d d' n <= exp (order alpha * (unit * IZR highest)))%R.
  Proof. intros. now apply (population_filter_in_rho partitions) with cell_of k xs datasets. Qed.
End Statements.
