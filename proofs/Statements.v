(** * What is proved. The definitions stand in Model.v, and in the files that a section names. *)

Require Import ZArith List Reals.
Require Import Model Scopes Chances Ledger Decisions Populations Filter People Units TheoremL Mechanisms
  PermuteAndFlip Samplers DeltaSetAside Ingestion.
Import ListNotations.
Open Scope Z_scope.

(** ** The largest load of a scope, as the product computes it (Scopes.v) *)
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
  (** The guard may widen boxes, or none. The partitions are declared. The state is one that was written. *)
  Variables (widened : guard) (guards : is_guard widened).
  Variables (ps : list partition) (known : declared ps) (st : state) (is_written : written widened ps st).
  Let is_sound := written_is_sound widened ps st guards is_written.

  (** ** An account (Decisions.v) *)
  (** At every prefix [p] of what is written, for every record: nothing is negative, what is charged and
      reserved is at most the highest cap, and what is charged never falls. *)
  Theorem no_record_is_overdrawn : forall c es st',
    0 <= c -> run (guarded widened ps) (opened c) es = Some st' ->
    forall p q, es = p ++ q -> forall r, record ps r -> 0 <= spent p r /\ 0 <= pending p r /\
    spent p r + pending p r <= highest_of c p /\ spent p r <= spent es r.
  Proof. exact (never_overdrawn ps _ (guarded_bounds widened guards ps)). Qed.
  (** A request is admitted if and only if it fits for every record that its scope covers. *)
  Theorem admitted_iff_it_fits_everywhere : forall job b, well_formed ps (scope_of b) ->
    (exists st', apply (largest ps) st (Reserve job b) = Some st') <-> 0 < amount b /\
    forall r, record ps r -> covers (scope_of b) r = true -> load (boxes st) r + amount b <= cap st.
  Proof. exact (admitted_iff_fits ps known st is_sound). Qed.
  (** Every refusal has a record that would be over the cap. *)
  Theorem refusal_names_a_record : forall job b, well_formed ps (scope_of b) -> 0 < amount b ->
    apply (largest ps) st (Reserve job b) = None ->
    exists r, record ps r /\ covers (scope_of b) r = true /\ cap st < load (boxes st) r + amount b.
  Proof. exact (refused_has_reason ps known st is_sound). Qed.
  (** Where the bound that an account keeps shows that a request fits, the search admits it, too. *)
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
  (** After an admission in a member, no person has lost more than the cap in force. *)
  Theorem admission_keeps_the_cap_of_a_population : forall i job b w' p, In i (members w) ->
    step partitions (guarded widened) is_pure w (Own i (Reserve job b)) = Some w' ->
    person partitions p -> loss w' p <= population_cap w'.
  Proof. exact (admitted_within_population_cap _ _ _ bounds some_records w w_is_sound). Qed.

  (** ** Privacy filters: what decides about requests holds back adaptive analysts (Filter.v, People.v) *)
  (** An analyst asks [apply] for anything, by all that was seen. For a unit of up to [k] rows, no set of
      transcripts is more probable, with the unit or without, than by the factor e^(highest cap). *)
  Theorem ledger_is_a_privacy_filter : forall row outcome (cell_of : row -> joint_cell) unit k,
    (forall x, record ps (cell_of x)) -> (0 <= unit)%R -> (0 < k)%nat ->
    forall s : @strategy entry (list row) outcome, honest unit k cell_of s ->
    forall c xs d d' highest ws, 0 <= c -> (length xs <= k)%nat -> added xs d d' ->
    let advance := apply (guarded widened ps) in
    (forall w, In w ws -> highest_cap (reached advance s (opened c) [] w) <= highest) ->
    close (unit * IZR highest)
      (sum_of (chance advance s (opened c) [] d) ws) (sum_of (chance advance s (opened c) [] d') ws).
  Proof. exact (@ledger_filter ps _ (bounds ps)). Qed.
  (** An analyst asks [step] for anything. The same holds, with the limit that is printed, for a person
      with up to [k i] rows in each of some [datasets], if the population counts these in the end. *)
  Theorem population_is_a_privacy_filter : forall row outcome (cell_of : nat -> row -> joint_cell) unit k,
    (forall i x, record (partitions i) (cell_of i x)) -> (0 <= unit)%R -> (forall i, (0 < k i)%nat) ->
    forall s : @strategy act (nat -> list row) outcome, honest_in_world unit k cell_of s ->
    forall (xs : nat -> list row) datasets, NoDup datasets -> (forall i, xs i <> [] -> In i datasets) ->
    (forall i, (length (xs i) <= k i)%nat) -> forall caps c d d' highest ws,
    (forall i, 0 <= caps i) -> 0 <= c -> (forall i, added (xs i) (d i) (d' i)) ->
    let advance := step partitions (guarded widened) is_pure in let start := opened_world caps c in
    (forall w, In w ws -> let final := reached advance s start [] w in
      incl datasets (counted final) /\ printed is_pure final <= highest) ->
    close (unit * IZR highest)
      (sum_of (chance advance s start [] d) ws) (sum_of (chance advance s start [] d') ws).
  Proof. exact (@population_filter partitions _ is_pure bounds some_records). Qed.
End Statements.

(** ** A unit with at most k rows, in any cells (Units.v) *)
(** If no row's cell has a load above [m] in prices, the unit loses at most [m]. *)
Theorem k_rows_in_pure_loss : forall jobs rows k m, (Z.of_nat (length rows) <= k -> 0 < k -> 0 <= m ->
  (forall r, In r rows -> load (map as_box jobs) r <= m) ->
  (forall j, In j jobs -> k * rate j <= price j) -> pure_cost jobs rows <= m)%Z.
Proof. exact pure_cost_below. Qed.
(** In ρ and μ², rows count by their square. *)
Theorem k_rows_in_rho_and_mu : forall jobs rows k m, (Z.of_nat (length rows) <= k -> 0 < k -> 0 <= m ->
  (forall j, In j jobs -> 0 <= rate j) -> (forall r, In r rows -> load (map as_box jobs) r <= m) ->
  (forall j, In j jobs -> k * k * rate j <= price j) -> square_cost jobs rows <= m)%Z.
Proof. exact square_cost_below. Qed.

(** ** δ that is set aside: the same [apply], with the δ of mechanisms as amounts (DeltaSetAside.v) *)
(** A δ is charged at once if and only if it fits for every record of the scope. *)
Theorem delta_is_charged_iff_it_fits : forall widened ps, is_guard widened -> declared ps ->
  forall st, written widened ps st -> forall job b, well_formed ps (scope_of b) ->
  (exists st', run (largest ps) st [Reserve job b; Charge job b] = Some st') <-> 0 < amount b /\
  forall r, record ps r -> covers (scope_of b) r = true -> load (boxes st) r + amount b <= cap st.
Proof. intros widened ps G D st W. exact (charged_iff_fits ps D st (written_is_sound widened ps st G W)). Qed.
(** However mechanisms are chosen, one of them goes wrong about a record with at most the chance set aside. *)
Theorem delta_bounds_what_goes_wrong : forall widened ps, is_guard widened ->
  forall data outcome outcomes unit (d : data) r, (0 <= unit)%R -> record ps r ->
  forall (s : @strategy entry data outcome) c highest n, 0 <= c <= highest -> laws_add_up outcomes d s ->
  (forall h, cap_of (asked (s h)) <= highest) -> (unit * IZR highest <= 1)%R ->
  (goes_wrong (guarded widened ps) outcomes unit d r s n (opened c) [] <= unit * IZR highest)%R.
Proof. intros widened ps G. exact (@goes_wrong_below_cap ps _ (guarded_bounds widened G ps)). Qed.

(** ** What is stored of uploads (Ingestion.v) *)
(** L6: a map of single rows to at most one row each keeps neighbours. *)
Theorem record_wise_maps_keep_neighbours : forall A B (g : A -> option B) xs d d', added xs d d' ->
  added (record_wise g xs) (record_wise g d) (record_wise g d') /\
  (length (record_wise g xs) <= length xs)%nat.
Proof. exact record_wise_added. Qed.
(** With a unit and without it, the rows that releases may depend on differ in at most k rows of that unit. *)
Theorem admission_keeps_neighbours : forall row (unit_of : row -> option nat) upload_of k u es,
  exists xs, (length xs <= k)%nat /\ (forall x, In x xs -> unit_of x = Some u) /\
  added xs (book_after unit_of upload_of k (without unit_of u es)) (book_after unit_of upload_of k es).
Proof. exact @books_are_neighbours. Qed.

(** ** Theorem L, for any predicates (TheoremL.v) *)
Open Scope R_scope.
(** (a) The loss of a row is at most what the jobs that read it cost, transcript by transcript. *)
Theorem adaptive_jobs_are_pure : forall row outcome (s : @choice row outcome) x d d',
  pure s -> added (x :: nil) d d' -> forall w h,
  close (lost s h x w) (likelihood s h d w) (likelihood s h d' w).
Proof. exact @theorem_L_pure. Qed.
(** (b) If these jobs cost at most [b] along every history, the moment of transcripts is that of [b]. *)
Theorem adaptive_jobs_are_zcdp : forall row outcome outcomes alpha (s : @choice row outcome) x d d',
  zcdp outcomes alpha s -> added (x :: nil) d d' -> (0 <= order alpha)%R -> forall k h b, (0 <= b)%R ->
  (forall w, (length w <= k)%nat -> (lost s h x w <= b)%R) ->
  (moment outcomes alpha s h d d' k <= exp (order alpha * b))%R.
Proof. exact @theorem_L_zcdp. Qed.

(** ** Mechanisms that are as private as they are charged (Mechanisms.v, PermuteAndFlip.v) *)
(** L1 (i): the exponential mechanism loses gamma times the range of the change of the utilities. *)
Theorem exponential_mechanism_is_private : forall candidate (candidates : list candidate),
  candidates <> nil -> forall gamma, 0 <= gamma ->
  forall u v low high c, (forall d, low <= v d - u d <= high) ->
  close (gamma * (high - low)) (selection candidates gamma u c) (selection candidates gamma v c).
Proof. exact @selection_private. Qed.
(** L2 (b): so does permute-and-flip, by the walk that the product takes. *)
Theorem permute_and_flip_is_private : forall gamma candidates, 0 <= gamma -> NoDup candidates ->
  forall u v best best' low high r, is_best candidates u best -> is_best candidates v best' ->
  In r candidates -> (forall s, In s candidates -> low <= v s - u s <= high) ->
  close (gamma * (high - low)) (permute_and_flip gamma candidates u best r)
                               (permute_and_flip gamma candidates v best' r).
Proof. exact permute_and_flip_private. Qed.
(** L3: integer noise on a vector. *)
Theorem integer_noise_is_private : forall a gamma, 0 <= a -> 0 <= gamma ->
  forall f g z, length f = length g ->
  close (gamma * IZR (distance f g)) (noisy a gamma f z) (noisy a gamma g z).
Proof. exact noise_private. Qed.
(** L5: shards of a stable assignment cost one of them. *)
Theorem stable_shards_cost_one : forall row outcome (part_of : row -> nat)
  (law : nat -> list row -> outcome -> R) e,
  (forall i, private e (law i)) -> 0 <= e -> forall parts x d d' os, NoDup parts -> added (x :: nil) d d' ->
  close e (shards part_of law parts d os) (shards part_of law parts d' os).
Proof. exact @shards_cost_one. Qed.

(** ** Samplers (Samplers.v) *)
(** S4: for gamma up to 1, the loop accepts with chance exp(-gamma), and else it ends and refuses. *)
Theorem bernoulli_exp_is_exact : forall gamma,
  Un_cv (ended gamma true) (exp (- gamma)) /\ Un_cv (ended gamma false) (1 - exp (- gamma)).
Proof. exact (fun gamma => conj (odd_with_exp gamma) (even_else gamma)). Qed.
(** S6: the chance of z is proportional to exp(-|z| s / t). *)
Theorem discrete_laplace_is_exact : forall s t, (0 < s)%nat -> (0 < t)%nat -> forall z,
  trial s t z = exp (- (INR (s * Z.abs_nat z) / INR t)) * trial s t 0.
Proof. exact trial_is_laplace. Qed.
