"""Deep generative replay: old pictures are drawn from a generator and labelled by the previous network.

Shin, Lee, Kim and Kim, Continual learning with deep generative replay, NeurIPS 2017; a VAE in place of its GAN, as in
van de Ven and Tolias, Three scenarios for continual learning, 2019.
"""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any

import torch
from torch import Tensor

from randpath.data.stream import Task
from randpath.keyed import rng
from randpath.learning.generated import normalised, pixels, require_small_pictures
from randpath.learning.method import Learned, Work
from randpath.learning.objective import cross_entropy
from randpath.learning.plain import Plain
from randpath.learning.train import Terms
from randpath.network.seeded import seeded
from randpath.network.vae import VAE
from randpath.settings import at_least


@dataclass(eq=False)
class DGR(Plain):
    """L = 1/k L_ce(new pictures) + (1 - 1/k) L_ce(replayed ones), as many as new ones in each step.

    The generator learns the new pictures and its own earlier ones by the same weights, with the VAE's -ELBO for L_ce.
    """

    _: KW_ONLY
    generator_epochs: Annotated[int | None, at_least(1), "of the generator per task; null: as the network"] = None
    hidden: Annotated[int, at_least(1), "neurons in a hidden layer of the generator"] = 400
    latent: Annotated[int, at_least(1), "numbers that a picture is drawn from"] = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        require_small_pictures("dgr", self.setting)

    def learn(self, task: Task, work: Work) -> Learned:
        net = self.begin(task)
        generator, lines = self._train_generator(task, work.part(0, 2))
        lines += self._train_network(net, task, work.part(1, 2))
        carried = {"generator": {name: p.detach().clone() for name, p in generator.state_dict().items()}}
        return self.commit(task, net, lines, carried=carried)

    def _generator(self) -> VAE:
        """The generator as it stands after the previous task."""
        h, w, c = self.setting.backbone.shape
        vae = seeded(lambda: VAE((h, w, c), self.hidden, self.latent), self.setting.seed, "vae")
        with torch.no_grad():
            for name, tensor in self.carried.get("generator", {}).items():
                vae.get_parameter(name).copy_(tensor)
        return vae.to(self.setting.device)

    def _train_generator(self, task: Task, work: Work) -> tuple[VAE, list[dict[str, Any]]]:
        s, new, old = self.setting, self._generator(), self._generator().requires_grad_(False)
        training = s.training.of_task(task.k)
        training = replace(training, epochs=self.generator_epochs or training.epochs)

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            draw = rng(s.seed, "generator", task.k, step)
            terms = {"elbo": (1 / task.k, new(pixels(x, s.augment), draw))}
            if task.k > 1:
                terms["replay"] = (1 - 1 / task.k, new(old.decoder.sample(len(x), draw), draw))
            return terms

        return new, self.fit(new, task, task.train, work, loss, name="generator", training=training)

    def _train_network(self, net: torch.nn.Module, task: Task, work: Work) -> list[dict[str, Any]]:
        s, old, teacher = self.setting, self._generator(), self.inference() if task.k > 1 else None

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            terms = {"ce": (1 / task.k, cross_entropy(net(x), y, smoothing=s.training.smoothing))}
            if teacher is not None:
                drawn = old.decoder.sample(len(x), rng(s.seed, "replay", task.k, step))
                replayed = normalised(drawn, s.augment)
                terms["replay"] = (1 - 1 / task.k, cross_entropy(net(replayed), teacher(replayed).argmax(dim=1)))
            return terms

        return self.fit(net, task, task.train, work, loss, name="network")
