"""A variational autoencoder for small pictures of one channel: what generative replay draws old pictures from."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from randpath.engines.device import moved


class Decoder(nn.Module):
    """z to pixels in 0..1: two hidden layers, then one logit for each pixel."""

    def __init__(self, shape: tuple[int, int, int], hidden: int, latent: int):
        super().__init__()
        h, w, c = shape
        self.shape, self.latent = (c, h, w), latent
        self.layers = nn.Sequential(
            nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, h * w * c)
        )

    def forward(self, z: Tensor) -> Tensor:  # (b, latent) -> logits of the pixels (b, c, h, w)
        return self.layers(z).view(-1, *self.shape)  # type: ignore[no-any-return]

    @torch.no_grad()
    def sample(self, n: int, draw: np.random.Generator) -> Tensor:
        """Pictures in 0..1 of z ~ N(0, 1)."""
        z = torch.from_numpy(draw.standard_normal((n, self.latent), np.float32))
        return torch.sigmoid(self(moved(z, next(self.parameters()).device)))


class VAE(nn.Module):
    """An encoder of two hidden layers to the mean and log variance of z, and a decoder (Kingma and Welling, 2014)."""

    def __init__(self, shape: tuple[int, int, int], hidden: int = 400, latent: int = 100):
        super().__init__()
        h, w, c = shape
        self.encoder = nn.Sequential(
            nn.Flatten(), nn.Linear(h * w * c, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.to_latent = nn.Linear(hidden, 2 * latent)
        self.decoder = Decoder(shape, hidden, latent)

    def forward(self, x: Tensor, draw: np.random.Generator) -> Tensor:  # pixels in 0..1 -> -ELBO
        return negative_elbo(x, self.to_latent(self.encoder(x)), self.decoder, draw)


def negative_elbo(x: Tensor, latent: Tensor, decoder: Decoder, draw: np.random.Generator) -> Tensor:
    """-ELBO = E_z[-log p(x | z)] + KL(N(mu, sigma^2) || N(0, 1)), in nats per pixel, mean over the batch.

    `latent` is (mu, log sigma^2); z = mu + sigma * noise; p(x | z) is a Bernoulli for each pixel, x in 0..1.
    """
    mu, log_variance = latent.chunk(2, dim=1)
    noise = moved(torch.from_numpy(draw.standard_normal(tuple(mu.shape), np.float32)), mu.device)
    logits = decoder(mu + (log_variance / 2).exp() * noise)
    reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    divergence = gaussian_divergence(mu, log_variance).sum()
    return (reconstruction + divergence) / x.numel()


def gaussian_divergence(mu: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mu, sigma^2) || N(0, 1)) = (mu^2 + sigma^2 - 1 - log sigma^2) / 2, for each number.

    >>> gaussian_divergence(torch.tensor([0.0, 2.0]), torch.tensor([0.0, 0.0])).tolist()
    [0.0, 2.0]
    """
    return (mu.square() + log_variance.exp() - 1 - log_variance) / 2
