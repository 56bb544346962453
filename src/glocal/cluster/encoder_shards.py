"""An encoder whose weights are sharded over the processes of a group, by PyTorch's FSDP2.

- Each process keeps a part of the rows of every weight, of its gradient and of its moments. A layer
  is gathered when it is computed, forwards and backwards, and dropped again.
- Scores on dev and the finished model need all weights at once, as any process that predicts does:
  `EncoderShards.gathered` puts a whole encoder in place of the sharded one.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from glocal.encoders.encoder import Encoder, layers_path
from glocal.errors import ConfigError
from glocal.systems.system import System


def chunk_bounds(n_rows: int, rank: int, ranks: int) -> tuple[int, int]:
    """Return the first row that FSDP gives a rank and the one after its last."""
    size = -(-n_rows // ranks)
    return min(n_rows, size * rank), min(n_rows, size * (rank + 1))


def local_part(tensor: Tensor) -> Tensor:
    """Return the rows of a tensor that are in this process, without a graph; they share memory."""
    detached = tensor.detach()
    with torch.no_grad():
        return detached.to_local() if isinstance(detached, DTensor) else detached


def sharded_like(rows: Tensor, like: Tensor) -> Tensor:
    """Return the rows of this process as a tensor that is sharded as another, if that one is."""
    if not isinstance(like, DTensor):
        return rows
    return DTensor.from_local(
        rows.to(like.device),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )


def check_layers(encoder: Encoder) -> None:
    """Check that an encoder has layers to shard.

    Raises:
        ConfigError: It has none.
    """
    if layers_path(encoder.model) is None:
        raise ConfigError(
            f"the encoder {type(encoder.model).__name__} has no list of layers to shard; train it "
            "without sharding the encoder"
        )


class EncoderShards:
    """Shards the encoder of a system.

    Args:
        system: The system, on the CPU; the parts of its encoder are moved to the device.
        device: Where it is trained.

    Raises:
        ConfigError: The encoder has no layers.
    """

    def __init__(self, system: System, device: torch.device) -> None:
        check_layers(system.encoder)
        self._whole = _without_weights(system.encoder)
        self._device = device
        model = system.encoder.model
        mesh = init_device_mesh(device.type, (distributed.get_world_size(),))
        layers = model.get_submodule(layers_path(model))
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        # The embeddings, and whatever else is outside of the layers. Not the model itself: FSDP
        # changes its class, by which transformers knows the outputs that it returns.
        # Some encoders return views, about which FSDP warns; no expert changes them in place.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        self._sharded: FSDPModule = fully_shard(system.encoder, mesh=mesh)

    def exchange_gradients(self, exchange: bool) -> None:
        """Set whether the next backward pass averages gradients over the processes."""
        self._sharded.set_requires_gradient_sync(exchange)

    @contextlib.contextmanager
    def gathered(self, system: System) -> Iterator[None]:
        """Let the system have its whole encoder within the block; all processes enter it."""
        sharded = system.encoder
        self.gather(system)
        try:
            yield
        finally:
            system.encoder = sharded
            _drop_weights(self._whole)

    def gather(self, system: System) -> None:
        """Give the system its whole encoder in place of the sharded one."""
        sharded = system.encoder
        with torch.no_grad():
            weights = {
                name: tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
                for name, tensor in sharded.state_dict().items()
            }
        self._whole.load_state_dict(weights, assign=True)
        self._whole.to(self._device)  # buffers that are not stored
        system.encoder = self._whole.train(sharded.training)


def _without_weights(encoder: Encoder) -> Encoder:
    """Return a copy of an encoder whose parameters have a shape alone."""
    blank: dict[int, object] = {id(p): _blank(p) for p in encoder.parameters()}
    return copy.deepcopy(encoder, blank)


def _drop_weights(encoder: Encoder) -> None:
    for module in encoder.modules():
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, _blank(parameter))


def _blank(parameter: nn.Parameter) -> nn.Parameter:
    shape = torch.empty_like(parameter, device="meta")
    return nn.Parameter(shape, requires_grad=parameter.requires_grad)
