#!/usr/bin/env bash
# A test of the tests: each bug that `planted!` puts into the library must be caught by the test or the model that is named
# for it here. One build of the library's tests and one of the models serve for all; LATENT_PLANT takes one bug at a time.
#
# Not among them: what a weakened memory order breaks (stage-orders.sh), and a place of a job that is given back by a waiter
# who leaves, for a waiter knows no place (`ProviderJob` holds two ends of channels).
set -uo pipefail
# shellcheck source=.ci/common.sh
. .ci/common.sh

# NAME, ENGINE (lib: a test of the library; alloc: the allocation gate; else a file of models), and what must fail.
plants='
check_then_add            account_words   two_charges_one_unit
limit_after_the_step      account_words   give_vs_lower
staged_given_first        account_words   retain_has_no_gap
waiting_given_first       account_scopes  moving_to_running_has_no_gap
rollback_skips_the_last   account_scopes  two_reservations_over_three_words
list_without_tag          arena           free_list_aba
park_after_the_look       park            park_vs_change
park_without_a_second_look ring          a_parked_writer_learns_of_half_a_ring
pop_looks_for_no_writer   ring            a_parked_writer_learns_of_half_a_ring
release_without_a_signal  line            enqueue_meets_release
credit_after_the_sweep    credits         ending_meets_a_refusal
swallowed_grant           lib             a_grant_that_is_not_started_goes_back_at_its_deadline
post_after_the_plan       keeper          posting_meets_a_round
looks_after_a_post        keeper          a_look_without_the_clock_meets_the_keeper
watched_said_first        watched         a_stop_reaches_both_waiters_of_a_call
watched_too_long          watched         a_stop_reaches_the_next_call_in_the_slot
use_without_a_step        uses            two_for_the_last_use
spent_after_the_look      budgets         two_spend_one_permission
look_without_a_meeting    look            a_park_meets_a_look
kept_while_tight          spares          beginning_to_keep_meets_a_refusal
place_posted_by_the_end   jobs            submission_meets_the_end_and_the_owner
refund_twice              lib             s07_each_state_gives_back_exactly_what_it_charged
refund_before_drop        lib             a_connection_is_destroyed_before_its_charge
lower_below_use           lib             lowering_never_goes_below_use
same_incarnation          lib             a_weak_name_reaches_its_occupant_and_no_other
close_leaks_the_queue     lib             a_destructor_that_panics_does_not_keep_the_others_from_running
wake_under_the_turn       lib             a_waker_that_comes_back_in_has_its_release_served
outcome_overwritten       lib             the_first_cause_of_a_stop_stays
deadline_reset            lib             a_deadline_only_narrows
rotor_counts_providers    lib             more_providers_give_no_more_turns
passes_to_an_old_epoch    lib             a_unit_passes_within_its_epoch_only
second_dial_after_cancel  lib             a_cancelled_dial_makes_the_client_pause_32
expired_handed_out        lib             an_expired_connection_is_not_handed_out_31
plan_let_go_early         lib             an_epoch_never_dies_with_a_session_nor_under_the_mutex
clean_with_a_chunk_alive  lib             a_retained_result_keeps_a_shutdown_from_being_clean
a_box_on_the_way          alloc           no_hot_operation_takes_or_gives_back_memory
'

in_code=$(grep -rhoE 'planted!\("[a-z_]+"\)' src --include=*.rs --exclude=plant.rs | cut -d'"' -f2 | sort -u)
listed=$(awk 'NF == 3 { print $1 }' <<<"$plants" | sort)
[ "$in_code" = "$listed" ] || {
    echo 'planted bugs of the code and of this list differ:'
    diff <(echo "$in_code") <(echo "$listed")
    exit 1
}

log=$target/plants
mkdir -p "$log"
RUSTC_WORKSPACE_WRAPPER=$(cfg_wrapper plant)
export RUSTC_WORKSPACE_WRAPPER
cargo test --quiet --locked -p latent-capabilities --lib --test no_alloc --no-run || exit

# ENGINE TEST: runs it with the bug that LATENT_PLANT names.
run() {
    case $1 in
        lib) library --lib -- "$2" ;;
        alloc) library --test no_alloc -- "$2" ;;
        *) model --test "$1" -- --exact "$2" ;;
    esac
}
library() {
    timeout 300 cargo test --quiet --locked -p latent-capabilities "$@"
}
model() {
    # The first one builds them all.
    RUSTFLAGS='--cfg loom' LATENT_LOOM_SECONDS=60 LATENT_LOOM_FIGURES=$log/figures.txt \
        CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0 \
        timeout 600 cargo test --quiet --release --locked -p loom-tests --target-dir "$target/loom" "$@"
}

code=0 many=0 caught=0
printf '%-26s %-15s %-64s %s\n' bug engine 'test or model' result
while read -r name engine test; do
    [ -n "$name" ] || continue
    many=$((many + 1)) verdict=caught
    LATENT_PLANT=$name run "$engine" "$test" >"$log/$name.log" 2>&1 </dev/null && verdict='NOT CAUGHT'
    # It says something about the bug only if it is there and passes without it.
    LATENT_PLANT='' run "$engine" "$test" >"$log/$name-without.log" 2>&1 </dev/null || verdict='FAILS WITHOUT IT'
    grep -qE '^test result: ok\. [1-9]' "$log/$name-without.log" || verdict='NO SUCH TEST'
    if [ "$verdict" = caught ]; then caught=$((caught + 1)); else code=1; fi
    printf '%-26s %-15s %-64s %s\n' "$name" "$engine" "$test" "$verdict"
done <<<"$plants"
figure 'planted bugs' "$many"
figure 'of these caught' "$caught"
exit "$code"
