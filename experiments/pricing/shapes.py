"""The models' sizes and parts: the paper's numbers, and named assumptions for those that it does not print.

Parameters are counted here by arithmetic; a test compares that with the arrays.
"""

from itertools import pairwise
from typing import NamedTuple

import msgspec

VOCABULARY = 32_768  # assumed: 32 k word pieces, a multiple of every mesh axis in use


class Decoder(msgspec.Struct, frozen=True):
    """A decoder-only language model. The embedding and the softmax's weights are not tied, so that the first
    and last stage of a pipeline share nothing."""

    name: str
    layers: int
    d_model: int
    d_ff: int
    heads: int
    d_head: int
    gated: bool = False
    vocabulary: int = VOCABULARY
    assumed: str = ""  # which of the above the paper does not print
    kv_heads: int = 0  # of keys and values, each for several heads of queries; 0: as many as heads

    @property
    def per_layer(self) -> int:
        attention = 2 * self.d_model * (self.heads + (self.kv_heads or self.heads)) * self.d_head
        feed_forward = (3 if self.gated else 2) * self.d_model * self.d_ff
        return attention + feed_forward + 2 * self.d_model

    @property
    def parameters(self) -> int:
        return self.layers * self.per_layer + 2 * self.vocabulary * self.d_model + self.d_model


class T5(msgspec.Struct, frozen=True):
    """An encoder-decoder in the shapes of the T5 paper (Raffel et al. 2020, v1.0), softmax not tied as in T5X."""

    name: str
    layers: int  # of the encoder, and again of the decoder
    d_model: int
    d_ff: int
    heads: int
    d_head: int
    buckets: int = 32  # of relative positions; one table an encoder or decoder, shared by its layers
    vocabulary: int = 32_128

    @property
    def per_layer(self) -> int:
        """An encoder layer and a decoder layer: three attentions, two feed-forwards, five norms."""
        attention = 4 * self.d_model * self.heads * self.d_head
        return 3 * attention + 2 * 2 * self.d_model * self.d_ff + 5 * self.d_model

    @property
    def parameters(self) -> int:
        tables = 2 * self.vocabulary * self.d_model + 2 * self.buckets * self.heads
        return self.layers * self.per_layer + tables + 2 * self.d_model


LM_3B = Decoder("LM-3B", 62, 2048, 8192, heads=16, d_head=128, assumed="heads of 128, vocabulary of 32 k")

# Only the sizes of these two are printed. We take one family, that of the largest dense decoders published from
# this hardware's makers at the time (width 8192, gated feed-forward, heads of 128; LaMDA's 137B has 64 layers
# of d_ff 65,536), and choose the rest to meet the printed size.
LM_64B = Decoder("LM-64B", 60, 8192, 32_768, heads=64, d_head=128, gated=True, assumed="all but its size")
LM_136B = Decoder("LM-136B", 64, 8192, 65_536, heads=128, d_head=128, gated=True, assumed="all but its size")

T5_BASE = T5("T5-Base", 12, 768, 3072, heads=12, d_head=64)
T5_LARGE = T5("T5-Large", 24, 1024, 4096, heads=16, d_head=64)
T5_3B = T5("T5-3B", 24, 1024, 16_384, heads=32, d_head=128)
T5_11B = T5("T5-11B", 24, 1024, 65_536, heads=128, d_head=128)

Model = Decoder | T5
MODELS: dict[str, Model] = {model.name: model for model in (LM_3B, LM_64B, LM_136B, T5_BASE, T5_LARGE, T5_3B, T5_11B)}


class Part(NamedTuple):
    """Consecutive layers of a decoder, with the embedding before the first and the softmax after the last. A pipeline's
    stage is a part, and so is the whole model."""

    model: Decoder
    layers: int
    first: bool = True
    last: bool = True

    @property
    def name(self) -> str:
        ends = {(True, True): "whole", (True, False): "first", (False, True): "last"}
        return f"{self.model.name}/{ends.get((self.first, self.last), 'middle')}{self.layers}"

    @property
    def parameters(self) -> int:
        wide = self.model.vocabulary * self.model.d_model
        return self.layers * self.model.per_layer + self.first * wide + self.last * (wide + self.model.d_model)


def whole(model: Decoder) -> Part:
    return Part(model, model.layers)


def stages(model: Decoder, count: int) -> list[Part]:
    """The paper's stages: the same number of layers in each, but one less in the first and in the last, which have the
    embedding and the softmax. If layers cannot be divided like this, they are spread as evenly as possible."""
    if count == 1:
        return [whole(model)]
    slots = model.layers + 2
    if count > slots:
        raise ValueError(f"{model.name} has {model.layers} layers: at most {slots} stages, not {count}")
    cuts = [slots * i // count for i in range(count + 1)]
    sizes = [high - low for low, high in pairwise(cuts)]
    sizes[0] -= 1
    sizes[-1] -= 1
    return [Part(model, size, i == 0, i == count - 1) for i, size in enumerate(sizes)]


def flops_per_token(model: Decoder, length: int) -> float:
    """Flops of one training token, forward and backward without recomputation, as used for utilisation."""
    weights = model.parameters - model.vocabulary * model.d_model  # looking up an embedding multiplies nothing
    attention = 2 * 2 * length * model.heads * model.d_head * model.layers  # scores and sums, not skipping the mask
    return 6.0 * weights + 3.0 * attention
