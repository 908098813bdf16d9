"""Pulls the image of a container, reports progress in its status, and retries with kubelet's back-off."""

from collections.abc import Callable

from paddle_operator.kube.backoff import exponential
from paddle_operator.local.cri import Image, ImageError
from paddle_operator.local.kubelet.pod_context import PodContext
from paddle_operator.local.kubelet.pod_status import CONTAINER_CREATING

FIRST_PULL_BACKOFF_SECONDS = 10.0
MAX_PULL_BACKOFF_SECONDS = 300.0
ERR_IMAGE_PULL_SECONDS = 1.0  # from ErrImagePull to ImagePullBackOff
PROGRESS_INTERVAL_SECONDS = 1.0  # at most one status write in this time
CACHED_IMAGE_SECONDS = 0.2  # an image that is in the cache is found faster than this


class ImageManager:
    """Pulls for one container; `set_waiting` reports a reason and a message as its state."""

    def __init__(self, context: PodContext, image: str, set_waiting: Callable[[str, str], None]) -> None:
        self._context = context
        self._name = image
        self._set_waiting = set_waiting
        self._clock = context.deps.clock
        self._started_at = 0.0
        self._reported_at = float("-inf")
        self._pulling = False

    async def ensure_image(self) -> Image:
        """Return the image once it is present."""
        retry = 1
        while True:
            self._started_at = self._clock.monotonic()
            self._pulling = False
            try:
                image = await self._context.deps.images.find(self._name, self._on_progress)
            except ImageError as error:
                await self._back_off(error, exponential(retry, FIRST_PULL_BACKOFF_SECONDS, MAX_PULL_BACKOFF_SECONDS))
                retry += 1
                continue
            seconds = self._clock.monotonic() - self._started_at
            if seconds > CACHED_IMAGE_SECONDS:
                message = f'Successfully pulled image "{self._name}" in {seconds:.3g}s'
            else:
                message = f'Container image "{self._name}" already present on machine'
            self._context.emit_normal("Pulled", message)
            return image

    async def _back_off(self, error: ImageError, seconds: float) -> None:
        reason = error.reason
        self._set_waiting(reason, str(error))
        self._context.emit_warning("Failed", f'Failed to pull image "{self._name}": {error}')
        self._context.emit_warning("Failed", f"Error: {reason}")
        if reason == "ErrImagePull":  # InvalidImageName and similar reasons stay
            await self._clock.sleep(ERR_IMAGE_PULL_SECONDS)
            self._set_waiting("ImagePullBackOff", f'Back-off pulling image "{self._name}": {reason}: {error}')
            self._context.emit_normal("BackOff", f'Back-off pulling image "{self._name}"')
        await self._context.wait_for_change(seconds)

    def _on_progress(self, line: str) -> None:
        now = self._clock.monotonic()
        if not self._pulling and now > self._started_at + CACHED_IMAGE_SECONDS:
            self._pulling = True
            self._context.emit_normal("Pulling", f'Pulling image "{self._name}"')
        if now >= self._reported_at + PROGRESS_INTERVAL_SECONDS:
            self._reported_at = now
            self._set_waiting(CONTAINER_CREATING, line)
