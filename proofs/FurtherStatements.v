(** * What is proved besides of units, δ, what is stored, adaptive jobs in general, mechanisms and samplers.
    Each section names the files whose definitions it speaks of. *)

Require Import ZArith List Reals.
Require Import Model Jobs Scopes Ledger Decisions Units TheoremL Mechanisms PermuteAndFlip Samplers
  DeltaSetAside Ingestion.
Import ListNotations.
Open Scope Z_scope.

(** ** A unit with at most k rows, in any cells: the arithmetic of its prices (Units.v) *)
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

(** ** δ that is set aside: the same [apply], with the δ of mechanisms as amounts (DeltaSetAside.v).
    No test compares the service's own sums of δ with it. *)
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
(** (b) For finitely many outcomes of positive chance: if these jobs cost at most [b] along every history, the
    moment of transcripts, of order [alpha], is that of [b]. An [alpha] below 0 gives the other order of
    neighbours. Other outcomes are a limit, on paper. *)
Theorem adaptive_jobs_are_zcdp : forall row outcome outcomes alpha (s : @choice row outcome) x d d',
  zcdp outcomes alpha s -> added (x :: nil) d d' -> (0 <= order alpha)%R -> forall k h b, (0 <= b)%R ->
  (forall w, (length w <= k)%nat -> (lost s h x w <= b)%R) ->
  (moment outcomes alpha s h d d' k <= exp (order alpha * b))%R.
Proof. exact @theorem_L_zcdp. Qed.

(** ** Mechanisms that are as private as they are charged (Mechanisms.v, PermuteAndFlip.v) *)
(** L1 (i): the exponential mechanism loses gamma times the range of the change of the utilities. *)
Theorem exponential_mechanism_is_private : forall candidate (candidates : list candidate),
  candidates <> nil -> forall gamma, 0 <= gamma ->
  forall u v low high c, In c candidates -> (forall d, In d candidates -> low <= v d - u d <= high) ->
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
(** L5: shards of a stable assignment cost one of them, if each is as private as the others and its law
    depends on its own rows alone. That it may depend on what others released is on paper. *)
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
