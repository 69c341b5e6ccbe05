(** * What is proved. The definitions stand in Model.v, and in the files that a section names. *)

Require Import ZArith List Reals.
Require Import Model Scopes Units TheoremL Mechanisms PermuteAndFlip Samplers.

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

(** Where the search takes too long, wider boxes bound the load of every record. *)
Theorem guard_is_sound : forall ps bs (widened : box -> box) inside r,
  nonnegative bs -> record ps r -> covers inside r = true ->
  (forall b, In b bs -> amount (widened b) = amount b /\
     (forall a, covers (scope_of b) a = true -> covers (scope_of (widened b)) a = true)) ->
  (load bs r <= largest ps (map widened bs) inside)%Z.
Proof. exact wider_bounds. Qed.

(** ** A unit with at most k rows, in any cells (Units.v) *)

(** If no row's cell has a load above [m] in prices, the unit loses at most [m]. *)
Theorem k_rows_in_pure_loss : forall jobs rows k m, (Z.of_nat (length rows) <= k -> 0 < k -> 0 <= m ->
  (forall r, In r rows -> load (map as_box jobs) r <= m) ->
  (forall j, In j jobs -> k * rate j <= price j) -> pure_cost jobs rows <= m)%Z.
Proof. exact pure_cost_below. Qed.

Theorem k_rows_in_rho_and_mu : forall jobs rows k m, (Z.of_nat (length rows) <= k -> 0 < k -> 0 <= m ->
  (forall j, In j jobs -> 0 <= rate j) -> (forall r, In r rows -> load (map as_box jobs) r <= m) ->
  (forall j, In j jobs -> k * k * rate j <= price j) -> square_cost jobs rows <= m)%Z.
Proof. exact square_cost_below. Qed.

(** ** Theorem L, for any predicates (TheoremL.v) *)

(** (a) The loss of a row is at most what the jobs that read it cost, transcript by transcript. *)
Theorem adaptive_jobs_are_pure : forall row outcome (s : @choice row outcome) x d d',
  pure s -> added (x :: nil) d d' ->
  forall w h, close (lost s h x w) (likelihood s h d w) (likelihood s h d' w).
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
