"""Have images on the host before guests need them."""

from __future__ import annotations

from typing import Any

from models.errors import Unreachable
from models.messages.base import Message, parse
from models.messages.guests.image_files import ImageFile
from workers.actions.action_context import Work
from workers.hypervisor.ports import IMAGE_CORRUPT


class CacheArgs(Message):
    """The images, each with where its content is."""

    images: tuple[ImageFile, ...]


def cache_images(work: Work) -> dict[str, Any]:
    """Have the images cached in addition to those that are, each of them whole.

    The instance of the instruction stands for the operation. Raises `Unreachable`
    (`image_corrupt`, with the ids in `images`) when some came damaged, after all others have been
    cached: the agent tries again as often as it does for any call, then the instruction has failed.
    """
    wanted = {image.id: image for image in parse(CacheArgs, work.instruction.args).images}
    present = work.hypervisor.images()
    corrupt = [
        name for name, image in wanted.items() if name not in present and not _cached(work, image)
    ]
    if corrupt:
        message = f"images came damaged: {', '.join(corrupt)}"
        raise Unreachable(IMAGE_CORRUPT, message, images=corrupt)
    return {"images": list(wanted)}


def _cached(work: Work, image: ImageFile) -> bool:
    """Return whether the image is there now; False when it came damaged."""
    try:
        work.hypervisor.cache_image(work.instance_id, image)
    except Unreachable as error:
        if error.code != IMAGE_CORRUPT:
            raise
        return False
    return True
