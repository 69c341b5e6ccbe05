(** * The lifetime ledger, as the theorems speak of it: definitions alone. Jobs.v defines what a job is and
    when it is as private as it is charged. Statements.v says what is proved.

    A dataset has _partitions_. Each puts every row into one of its cells, by a function of that row alone.
    So a row is known here by its _joint cell_, its cell in each partition. A _record_ is a row whose cells
    exist. A _scope_ lists cells of some partitions, and _covers_ the records in these cells. An _account_ is
    a list of entries: reservations, charges, voids, changes of its cap. An amount is set aside on every joint
    cell of a scope. The _load_ of a record is the sum of the amounts whose scopes cover it. [apply] decides
    whether an entry may follow those before it. It stands for the service, which writes no entry that [apply]
    refuses. The service may refuse more: by a guard where its search is too much work, and for rules, quotas,
    freezes, approvals, erasures. Each of these follows from requests and releases, so it is as if the analyst
    had not asked. A _population_ has one more cap over datasets about the same people. A _world_ is a
    population with its datasets; [step] decides in it.
    An analyst is a _strategy_: a function of all that was answered and released, which asks for one entry
    after another. To start a job is to charge it and to release an outcome, with a chance that depends on
    rows. [chance] is the probability of a transcript. The filter theorems compare it on two _neighbours_: one
    has up to k rows of one unit more. They hold for [apply] and [step] themselves, whatever is asked, in ε,
    and in ρ for jobs with finitely many outcomes. In μ² they are on paper.

    What is assumed, and not proved:
    - The cells of a row are a function of that row alone. No other row and no time changes them.
    - A job reads the rows of its scope alone, and is as private as it is charged (Jobs.v).
    - Entries are decided one after another, each in the state after all before it: one lock, one order. A job
      releases when it is charged; that jobs overlap in time changes nothing on paper (accounting.md, A3).
    - Rows are there before the first request. That rows arrive, and that uploads are erased, in view of
      releases is on paper; Ingestion.v says which rows are stored, and is not joined with the filters.
    - Neighbours differ in whole rows. Accounts for labels, and rows that are replaced, are on paper.
    - A job on several accounts is an act after another here. All or none is proved for one account.
    - An analyst sees answers and outcomes, and nothing else that depends on rows: no times and no sizes.
    - Integers have no limit here; the service keeps amounts below 2^63. How prices are rounded to amounts
      (A1), entries that repeat a state, and entries of acts outside accounts are not modelled.
    - The Python code does what [apply] and [step] do. Tests compare both; no proof speaks about Python.
    - Chances are of single transcripts or finite sets. To draw lots is to average over strategies, and an
      infinite set of transcripts is a limit of finite ones: both steps stay on paper. *)

Require Import ZArith List Bool Rdefinitions.
Import ListNotations.
Open Scope Z_scope.

Fixpoint sum_over {A} (f : A -> Z) (l : list A) : Z :=
  match l with [] => 0 | x :: rest => f x + sum_over f rest end.
(** The state after some requests; [None] where one of them cannot follow those before it. *)
Fixpoint follow {S Q} (advance : S -> Q -> option S) (st : S) (requests : list Q) : option S :=
  match requests with [] => Some st | q :: rest =>
    match advance st q with Some st' => follow advance st' rest | None => None end
  end.

(** ** Records, scopes and loads *)
Definition partition := option (list nat).      (** its cells; [None] if every upload is one *)
Definition joint_cell := nat -> nat.            (** the cell in each partition *)
Definition scope := list (option (list nat)).   (** cells of each partition; [None] restricts nothing *)
Record box := Box { scope_of : scope; amount : Z }.     (** an amount on every joint cell of a scope *)

Definition record (ps : list partition) (r : joint_cell) : Prop :=
  forall x cells, nth_error ps x = Some (Some cells) -> In (r x) cells.
Definition is_in (v : nat) (cells : list nat) : bool := existsb (Nat.eqb v) cells.
Definition cells_in (s : scope) (x : nat) : option (list nat) := nth x s None.
Definition allows (cells : option (list nat)) (v : nat) : bool :=
  match cells with None => true | Some listed => is_in v listed end.
Definition covers (s : scope) (r : joint_cell) : bool :=
  forallb (fun x => allows (cells_in s x) (r x)) (seq 0 (length s)).

Definition share (r : joint_cell) (b : box) : Z := if covers (scope_of b) r then amount b else 0.
Definition load (bs : list box) (r : joint_cell) : Z := sum_over (share r) bs.
Definition nonnegative (bs : list box) : Prop := forall b, In b bs -> 0 <= amount b.
(** What the service accepts as declarations and scopes: no empty list, and no cell that is not declared. *)
Definition declared (ps : list partition) : Prop := forall cells, In (Some cells) ps -> cells <> [].
Definition well_formed (ps : list partition) (s : scope) : Prop :=
  (forall x cells, cells_in s x = Some cells -> cells <> []) /\
  (forall x cells all, cells_in s x = Some cells -> nth_error ps x = Some (Some all) -> incl cells all).

(** ** An account *)

Inductive entry :=
| Cap (c : Z)                       (** another cap is in force from now on *)
| Opening (n h : Z)                 (** continues an erased dataset of load [n], whose highest cap was [h] *)
| Reserve (job : nat) (b : box) | Charge (job : nat) (b : box)
| Void (job : nat) (b : box) | Expire (job : nat) (b : box).
Record state := State { cap : Z; highest_cap : Z; charged : list box; reserved : list (nat * box) }.
(** An account that is opened with a cap of 0 is closed. *)
Definition opened (c : Z) : state := State c c [] [].
Definition boxes (st : state) : list box := charged st ++ map snd (reserved st).
Definition is_used (st : state) : bool := match boxes st with [] => false | _ => true end.

Definition same_reservation (p q : nat * box) : {p = q} + {p <> q}.
Proof. repeat (apply Z.eq_dec || apply Nat.eq_dec || apply list_eq_dec || decide equality). Defined.
(** The reservations without one of them; [None] if it is not there. *)
Fixpoint take (p : nat * box) (l : list (nat * box)) : option (list (nat * box)) :=
  match l with
  | [] => None
  | q :: rest => if same_reservation p q then Some rest else option_map (cons q) (take p rest)
  end.

Section Account.
  Variable tightest : list box -> scope -> Z.   (** the largest load in a scope, as the service computes it *)
  Definition apply (st : state) (e : entry) : option state :=
    match e with
    | Cap c =>
        let highest := if is_used st || (c =? 0) then Z.max (highest_cap st) c else c in
        if (cap st =? 0) || (c <? 0) then None else Some (State c highest (charged st) (reserved st))
    | Opening n h =>
        if negb (is_used st) && (0 <? n) && (n <=? h) && (cap st <=? h)
        then Some (State (cap st) h [Box [] n] []) else None
    | Reserve job b =>
        if (0 <? amount b) && (tightest (boxes st) (scope_of b) + amount b <=? cap st)
        then Some (State (cap st) (highest_cap st) (charged st) ((job, b) :: reserved st)) else None
    | Charge job b =>
        option_map (State (cap st) (highest_cap st) (b :: charged st)) (take (job, b) (reserved st))
    | Void job b | Expire job b =>
        option_map (State (cap st) (highest_cap st) (charged st)) (take (job, b) (reserved st))
    end.
  Definition run : state -> list entry -> option state := follow apply.
  (** A job of several parts is admitted as a whole or not at all. *)
  Definition admit (st : state) (parts : list (nat * box)) : option state :=
    run st (map (fun part => Reserve (fst part) (snd part)) parts).
End Account.

(** What entries say about a record, read from the entries alone. *)
Definition spent_by (r : joint_cell) (e : entry) : Z :=
  match e with Charge _ b => share r b | Opening n _ => n | _ => 0 end.
Definition pending_by (r : joint_cell) (e : entry) : Z :=
  match e with Reserve _ b => share r b | Charge _ b | Void _ b | Expire _ b => - share r b | _ => 0 end.
Definition cap_of (e : entry) : Z := match e with Cap c => c | Opening _ h => h | _ => 0 end.
Definition spent (es : list entry) (r : joint_cell) : Z := sum_over (spent_by r) es.
Definition pending (es : list entry) (r : joint_cell) : Z := sum_over (pending_by r) es.
Definition highest_of (c : Z) (es : list entry) : Z := fold_right (fun e z => Z.max (cap_of e) z) c es.

(** ** A population *)
(** [carried] is what the population's newest entry says about a member. A member that continues an erased
    dataset has [inherited] its load, and has it and those before it as [predecessors], whose accounts are
    [closed]. What is inherited and who came before decides nothing: the losses below are told by them. *)
Record world := World {
  account : nat -> state; members : list nat; carried : nat -> Z; population_cap : Z; population_highest : Z;
  inherited : nat -> Z; predecessors : nat -> list nat; closed : list nat }.

Inductive act :=
| Own (i : nat) (e : entry)         (** an entry of dataset [i], and for a member one of the population *)
| Join (i : nat)                    (** for good; late if something was spent *)
| Continue (i j : nat) (h : Z)      (** dataset [i] opens with the load of the erased member [j], for it *)
| PopulationCap (c : Z).
Definition is_member (w : world) (i : nat) : bool := is_in i (members w).
Definition together (w : world) : Z := sum_over (carried w) (members w).
Definition put {A} (f : nat -> A) (i : nat) (v : A) : nat -> A := fun k => if Nat.eqb k i then v else f k.
(** So is a population. *)
Definition opened_world (caps : nat -> Z) (c : Z) : world :=
  World (fun i => opened (caps i)) [] (fun _ => 0) c c (fun _ => 0) (fun _ => []) [].
Definition with_account (w : world) (i : nat) (st : state) (carries : Z) : world :=
  World (put (account w) i st) (members w) (put (carried w) i carries)
        (population_cap w) (population_highest w) (inherited w) (predecessors w) (closed w).

Section Population.
  Variables (partitions : nat -> list partition) (tightest : list partition -> list box -> scope -> Z).
  Variable is_pure : bool.            (** losses are in ε: then a late join raises no cap, see [printed] *)
  (** What a member carries after an entry led from [st] to [st']; [None] if the population has no room. *)
  Definition carried_after (w : world) (i : nat) (st st' : state) (e : entry) : option Z :=
    let whole := tightest (partitions i) (boxes st') [] in
    match e with
    | Reserve _ b =>
        let inside := tightest (partitions i) (boxes st) (scope_of b) + amount b in
        if (together w <=? population_cap w) && (together w - carried w i + inside <=? population_cap w)
        then Some (Z.min whole (Z.max (carried w i) inside)) else None
    | Void _ _ | Expire _ _ => Some (Z.min whole (carried w i))
    | Opening _ _ => None           (* it is the second entry of an account, so no member has it *)
    | Cap _ | Charge _ _ => Some (carried w i)
    end.
  Definition step (w : world) (a : act) : option world :=
    match a with
    | Own i e =>
        let st := account w i in
        match (if is_in i (closed w) then None else apply (tightest (partitions i)) st e) with
        | None => None
        | Some st' => option_map (with_account w i st')
                        (if is_member w i then carried_after w i st st' e else Some (carried w i))
        end
    | Join i =>
        let st := account w i in
        let carries := Z.min (tightest (partitions i) (boxes st) []) (highest_cap st) in
        let raise := if is_pure || (carries <=? 0) then 0 else highest_cap st in
        if is_member w i || is_in i (closed w) then None
        else Some (World (account w) (i :: members w) (put (carried w) i carries) (population_cap w)
                         (population_highest w + raise) (inherited w) (predecessors w) (closed w))
    | Continue i j h =>
        let ends := match reserved (account w j) with [] => is_member w j | _ => false end in
        if negb ends || is_member w i || is_in i (closed w) then None
        else option_map (fun st' => World (put (account w) i st') (i :: remove Nat.eq_dec j (members w))
                   (put (carried w) i (carried w j)) (population_cap w) (population_highest w)
                   (put (inherited w) i (carried w j)) (put (predecessors w) i (j :: predecessors w j))
                   (j :: closed w))
               (apply (tightest (partitions i)) (account w i) (Opening (carried w j) h))
    | PopulationCap c =>
        let highest := if (0 <? together w) || (c =? 0) then Z.max (population_highest w) c else c in
        if (population_cap w =? 0) || (c <? 0) then None
        else Some (World (account w) (members w) (carried w) c highest
                         (inherited w) (predecessors w) (closed w))
    end.
  Definition history : world -> list act -> option world := follow step.
  (** A person has at most one record in each dataset. *)
  Definition person (p : nat -> option joint_cell) : Prop :=
    forall i r, p i = Some r -> record (partitions i) r.
End Population.

(** The limit that is printed: in ε a sum over the cap is printed itself; else the highest cap. A population
    is closed when entries were lost. They may have reached the highest cap, so it takes the cap's place. *)
Definition printed (is_pure : bool) (w : world) : Z :=
  let limit := if population_cap w =? 0 then population_highest w else population_cap w in
  if is_pure then Z.max limit (together w) else population_highest w.
(** What a dataset costs a person, without what it took over; and all members with their predecessors. *)
Definition own_loss (w : world) (p : nat -> option joint_cell) (i : nat) : Z :=
  match p i with Some r => load (boxes (account w i)) r - inherited w i | None => 0 end.
Definition counted (w : world) : list nat := flat_map (fun i => i :: predecessors w i) (members w).
Definition loss (w : world) (p : nat -> option joint_cell) : Z := sum_over (own_loss w p) (counted w).

(** ** An analyst: [advance] is [apply] or [step], and [data] are the rows of one dataset or of all *)
Open Scope R_scope.
Section Analyst.
  Context {state request data outcome : Type} (advance : state -> request -> option state).
  Inductive event := Answer (accepted : bool) | Release (o : outcome).
  Inductive action := Write (q : request) | Start (q : request) (law : data -> outcome -> R).
  Definition strategy := list event -> action.
  Definition asked (a : action) : request := match a with Write q => q | Start q _ => q end.
  Definition next (st : state) (a : action) : state :=
    match advance st (asked a) with Some st' => st' | None => st end.
  Definition chance_of_event (st : state) (a : action) (d : data) (ev : event) : R :=
    match advance st (asked a), a, ev with
    | Some _, Write _, Answer true | None, _, Answer false => 1
    | Some _, Start _ law, Release o => law d o
    | _, _, _ => 0
    end.
  (** The chance of the events [w] after the events [h], and the state that they lead to. *)
  Fixpoint chance (s : strategy) (st : state) (h : list event) (d : data) (w : list event) : R :=
    match w with [] => 1 | ev :: rest =>
      chance_of_event st (s h) d ev * chance s (next st (s h)) (h ++ [ev]) d rest
    end.
  Fixpoint reached (s : strategy) (st : state) (h w : list event) : state :=
    match w with [] => st | ev :: rest => reached s (next st (s h)) (h ++ [ev]) rest end.
End Analyst.
