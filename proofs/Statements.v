(** * What is proved. The definitions stand in Model.v, and in the files that a section names. *)

Require Import ZArith List Reals.
Require Import Model Scopes TheoremL.

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
