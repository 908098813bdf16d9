"""The same node serves a real API server, which accepts its writes with the same meaning."""

from collections.abc import Awaitable, Callable

import pytest

from tests.local.kubelet import test_hosts_file as hosts_file
from tests.local.kubelet import test_pod_worker as pod_worker
from tests.local.kubelet import test_scheduler as scheduler
from tests.local.kubelet import test_volume_manager as volumes
from tests.local.kubelet.harness import NodeHarness

Scenario = Callable[[NodeHarness], Awaitable[None]]

SCENARIOS: list[Scenario] = [
    pod_worker.test_pod_that_exits_zero_succeeds,
    pod_worker.test_failed_pod_reports_its_exit_code,
    pod_worker.test_missing_program_is_a_start_error_with_code_128,
    pod_worker.test_init_containers_run_in_order_before_the_others,
    pod_worker.test_failed_init_container_fails_the_pod,
    pod_worker.test_sidecar_starts_before_and_ends_after_the_containers,
    pod_worker.test_pod_runs_until_both_containers_have_exited,
    pod_worker.test_on_failure_restarts_until_the_container_succeeds,
    pod_worker.test_deleted_pod_gets_sigterm_before_its_object_is_removed,
    pod_worker.test_program_that_ignores_sigterm_is_killed,
    pod_worker.test_second_deletion_shortens_the_grace_period,
    pod_worker.test_force_deleted_pod_leaves_no_process,
    pod_worker.test_patched_deadline_ends_the_pod_with_its_exit_code,
    pod_worker.test_pod_events_in_order,
    volumes.test_container_starts_as_soon_as_its_config_map_exists,
    volumes.test_config_map_files_change_while_the_program_runs,
    volumes.test_secret_files_have_the_requested_mode,
    hosts_file.test_later_service_resolves_in_a_running_pod,
    scheduler.test_unschedulable_pod_is_bound_once_resources_are_free,
    scheduler.test_pod_costs_one_write_a_step,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__.removeprefix("test_"))
async def test_on_a_real_control_plane(cluster_harness: NodeHarness, scenario: Scenario) -> None:
    await scenario(cluster_harness)
