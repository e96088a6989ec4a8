"""Replay through feedback: generative replay in which the classifier's own features feed the generator.

van de Ven and Tolias, Generative replay with feedback connections as a general strategy for continual learning, 2018.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from randpath.data.stream import Task
from randpath.keyed import rng
from randpath.learning.generated import OnPixels, pixels, require_small_pictures
from randpath.learning.method import Learned, Work
from randpath.learning.objective import cross_entropy, soft_cross_entropy
from randpath.learning.plain import Plain
from randpath.learning.train import Terms
from randpath.network.layers import PathNetwork
from randpath.network.seeded import seeded
from randpath.network.vae import Decoder, negative_elbo
from randpath.settings import above, at_least


class Feedback(nn.Module):
    """A network whose features also give the mean and log variance of z, from which a decoder draws the picture."""

    def __init__(self, net: PathNetwork, shape: tuple[int, int, int], hidden: int, latent: int):
        super().__init__()
        self.net = net
        self.to_latent = nn.Linear(net.head.num_features, 2 * latent)
        self.decoder = Decoder(shape, hidden, latent)

    def forward(self, x: Tensor, draw: np.random.Generator) -> tuple[Tensor, Tensor]:  # pixels in 0..1 -> q, -ELBO
        features = self.net.features(x)
        return self.net.head(features), negative_elbo(x, self.to_latent(features), self.decoder, draw)


@dataclass(eq=False)
class RtF(Plain):
    """L = 1/k (L_ce + L_g)(new pictures) + (1 - 1/k) (L_soft + L_g)(replayed ones), as many as new ones in each step.

    L_g is the -ELBO; L_soft is the cross-entropy with the previous network's softened answers. Both come from one
    network: there is no generator apart, and it takes pixels in 0..1, as a generator does. (With normalised ones the
    drawn pictures are worse, and points are lost on MNIST: docs/fairness.md.)
    """

    _: KW_ONLY
    temperature: Annotated[float, above(0), "of the softened answers"] = 2.0
    hidden: Annotated[int, at_least(1), "neurons in a hidden layer of the decoder"] = 400
    latent: Annotated[int, at_least(1), "numbers that a picture is drawn from"] = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        require_small_pictures("rtf", self.setting)

    def learn(self, task: Task, work: Work) -> Learned:
        s, net = self.setting, self.begin(task)
        model, old = self._feedback(net), self._feedback(net).decoder.requires_grad_(False)
        teacher = super().inference() if task.k > 1 else None

        def loss(x: Tensor, y: Tensor, step: int) -> Terms:
            draw = rng(s.seed, "rtf", task.k, step)
            q, elbo = model(pixels(x, s.augment), draw)
            terms = {
                "ce": (1 / task.k, cross_entropy(q, y, smoothing=s.training.smoothing)),
                "elbo": (1 / task.k, elbo),
            }
            if teacher is not None:
                replayed, share = old.sample(len(x), draw), 1 - 1 / task.k
                q, elbo = model(replayed, draw)
                terms["soft"] = (share, soft_cross_entropy(q, teacher(replayed), self.temperature))
                terms["replay"] = (share, elbo)
            return terms

        epochs = self.fit(model, task, task.train, work, loss)
        own = {name: t.detach().clone() for name, t in model.state_dict().items() if not name.startswith("net.")}
        return self.commit(task, net, epochs, carried={"generator": own})

    def inference(self) -> nn.Module:
        return OnPixels(super().inference(), self.setting.augment)

    def _feedback(self, net: PathNetwork) -> Feedback:
        """Around `net`, the generator as it stands after the previous task."""
        s = self.setting
        h, w, c = s.backbone.shape
        model = seeded(lambda: Feedback(net, (h, w, c), self.hidden, self.latent), s.seed, "feedback")
        with torch.no_grad():
            for name, tensor in self.carried.get("generator", {}).items():
                model.get_parameter(name).copy_(tensor)
        return model.to(s.device)
