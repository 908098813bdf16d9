"""The same node serves a real API server: what it writes is accepted there, and means the same."""

from collections.abc import Awaitable, Callable

import pytest

from tests.local.kubelet import test_configuration as configuration
from tests.local.kubelet import test_lives as lives
from tests.local.kubelet import test_names as names
from tests.local.kubelet import test_scheduler as scheduler
from tests.local.kubelet.bed import Bed

Story = Callable[[Bed], Awaitable[None]]

STORIES: list[Story] = [
    lives.test_a_pod_that_ends_well_has_succeeded,
    lives.test_a_pod_that_fails_keeps_its_exit_code,
    lives.test_a_program_that_does_not_exist_is_a_start_error_with_code_128,
    lives.test_init_containers_run_one_after_the_other_before_the_others,
    lives.test_a_failed_init_container_fails_the_pod_and_nothing_else_starts,
    lives.test_a_sidecar_is_there_before_the_containers_and_ended_after_them,
    lives.test_a_pod_with_two_containers_runs_until_both_have_ended,
    lives.test_on_failure_a_container_is_restarted_until_it_ends_well,
    lives.test_a_deleted_pod_gets_sigterm_and_its_object_goes_when_it_has_ended,
    lives.test_a_program_that_is_deaf_to_sigterm_is_killed_after_the_grace_period,
    lives.test_a_second_deletion_may_cut_the_grace_short,
    lives.test_a_pod_that_is_deleted_by_force_leaves_no_process,
    lives.test_a_deadline_that_is_patched_onto_a_running_pod_ends_it_with_its_true_code,
    lives.test_a_pod_tells_its_story_in_events,
    configuration.test_a_container_waits_for_its_config_map_and_starts_the_moment_it_is_there,
    configuration.test_a_config_map_is_files_and_they_change_while_the_program_runs,
    configuration.test_a_secret_is_files_with_the_mode_that_was_asked_for,
    names.test_a_name_that_comes_later_resolves_in_a_pod_that_runs_already,
    scheduler.test_a_pod_that_does_not_fit_is_told_so_and_bound_when_there_is_room,
    scheduler.test_a_pods_life_costs_one_write_a_step,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__.removeprefix("test_"))
async def test_on_a_real_control_plane(cluster_bed: Bed, story: Story) -> None:
    await story(cluster_bed)
