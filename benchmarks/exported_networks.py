"""Networks of torchvision, timm and transformers: random weights, small images, few layers.

In: nothing; nothing is downloaded.  Out: `NETWORKS`, each makes a module and its example inputs.
Read next: import_networks.py, which exports them and takes them in.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Network:
    """make: gives the module and its example inputs."""

    name: str
    make: Callable[[], tuple[Any, tuple[Any, ...]]]


def _image(size: int, frames: int = 0) -> Any:
    import torch

    torch.manual_seed(0)
    return torch.randn(*((1, 3, frames, size, size) if frames else (1, 3, size, size)))


def _torchvision(name: str, size: int = 64, frames: int = 0, **options: Any) -> Network:
    def make() -> tuple[Any, tuple[Any, ...]]:
        from torchvision import models

        net = models.get_model(name, weights=None, **options)
        return net, (_image(size, frames),)

    return Network(f"torchvision/{name}", make)


def _detector(name: str, size: int = 64) -> Network:
    """The part of a detector that is a network: backbone and heads, no anchors, no selection."""

    def make() -> tuple[Any, tuple[Any, ...]]:
        import torch
        from torchvision import models

        net = models.get_model(name, weights=None, weights_backbone=None)
        head = net.rpn.head if hasattr(net, "rpn") else net.head

        class Heads(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.backbone, self.head = net.backbone, head

            def forward(self, image: Any) -> tuple[Any, ...]:
                found = self.head(list(self.backbone(image).values()))
                parts = found.values() if isinstance(found, dict) else found
                return tuple(t for p in parts for t in (p if isinstance(p, list) else [p]))

        return Heads(), (_image(size),)

    return Network(f"torchvision/{name}", make)


def _mvit(name: str, **options: Any) -> Network:
    """torchvision's video transformer with four blocks; it gives no other way to a small one."""

    def make() -> tuple[Any, tuple[Any, ...]]:
        from torchvision.models.video import mvit

        first = (1, 32, 32, [], [1, 4, 4]), (1, 32, 64, [1, 2, 2], [1, 4, 4])
        later = (2, 64, 64, [], [1, 2, 2]), (2, 64, 128, [1, 2, 2], [1, 2, 2])
        blocks = [mvit.MSBlockConfig(*b[:3], [3] * len(b[3]), [3, 3, 3], *b[3:])
                  for b in (*first, *later)]  # fmt: skip
        net = mvit.MViT((64, 64), 8, blocks, **options)
        return net, (_image(64, 8),)

    return Network(f"torchvision/{name}", make)


def _timm(name: str, size: int = 64, **options: Any) -> Network:
    def make() -> tuple[Any, tuple[Any, ...]]:
        import timm

        return timm.create_model(name, pretrained=False, **options), (_image(size),)

    return Network(f"timm/{name}", make)


def _called(net: Any, masked: bool) -> Any:
    """`net` with no arguments but those given (the older exporter fills in others), its tensors."""
    import torch

    class Called(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, *given: Any) -> Any:
            found = self.net(*given).to_tuple()
            return tuple(t for t in found if isinstance(t, torch.Tensor))

    class Masked(Called):
        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.net(input_ids=input_ids, attention_mask=attention_mask).to_tuple()

    return Masked() if masked else Called()


STAGES = (1, 1, 1, 1)  # blocks in each
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 64}  # fmt: skip
VISION = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 128, "image_size": 32, "patch_size": 8}  # fmt: skip


def _words(count: int) -> Any:
    import torch

    return torch.arange(count).reshape(1, count) % 90


def _transformers(
    name: str, config: str, vision: int = 0, model: str = "AutoModel",
    inputs: Callable[[], tuple[Any, ...]] | None = None, **options: Any,
) -> Network:  # fmt: skip
    """A small one: `options` of its configuration; words unless it sees images or `inputs` say."""

    def make() -> tuple[Any, tuple[Any, ...]]:
        import transformers

        settings = getattr(transformers, config)(**options)
        kind = operator.attrgetter(model)(transformers)
        net = kind.from_config(settings) if model.startswith("Auto") else kind(settings)
        net.config.use_cache = False
        given = inputs() if inputs else (_image(vision) if vision else _words(16),)
        return _called(net, inputs is _masked), given

    return Network(f"transformers/{name}", make)


def _masked() -> tuple[Any, ...]:
    import torch

    return _words(16), torch.ones(1, 16, dtype=torch.int64)


def _mel() -> tuple[Any, ...]:
    import torch

    torch.manual_seed(0)
    return (torch.randn(1, 16, 64),)


def _wave() -> tuple[Any, ...]:
    import torch

    torch.manual_seed(0)
    return (torch.randn(1, 1600),)


NETWORKS = (
    # classification
    _torchvision("alexnet", 224), _torchvision("vgg11", 224), _torchvision("vgg16_bn", 224),
    _torchvision("resnet18"), _torchvision("resnet50"), _torchvision("resnext50_32x4d"),
    _torchvision("wide_resnet50_2"), _torchvision("densenet121"), _torchvision("googlenet"),
    _torchvision("inception_v3", 96), _torchvision("squeezenet1_0"), _torchvision("squeezenet1_1"),
    _torchvision("mobilenet_v2"), _torchvision("mobilenet_v3_small"),
    _torchvision("mobilenet_v3_large"), _torchvision("mnasnet1_0"),
    _torchvision("shufflenet_v2_x1_0"), _torchvision("efficientnet_b0"),
    _torchvision("efficientnet_v2_s"), _torchvision("regnet_y_400mf"),
    _torchvision("regnet_x_400mf"), _torchvision("convnext_tiny"),
    _torchvision("vit_b_16", 64, image_size=64), _torchvision("swin_t"),
    _torchvision("swin_v2_t"), _torchvision("maxvit_t", 224),
    # detection: backbones and heads
    _detector("ssd300_vgg16", 300), _detector("ssdlite320_mobilenet_v3_large", 128),
    _detector("retinanet_resnet50_fpn"), _detector("fasterrcnn_resnet50_fpn"),
    _detector("fasterrcnn_mobilenet_v3_large_fpn"), _detector("fcos_resnet50_fpn"),
    # segmentation
    _torchvision("fcn_resnet50", weights_backbone=None),
    _torchvision("deeplabv3_resnet50", weights_backbone=None),
    _torchvision("deeplabv3_mobilenet_v3_large", weights_backbone=None),
    _torchvision("lraspp_mobilenet_v3_large", weights_backbone=None),
    # video
    _torchvision("r3d_18", 32, 8), _torchvision("mc3_18", 32, 8),
    _torchvision("r2plus1d_18", 32, 8), _torchvision("s3d", 224, 16),
    _mvit("mvit_v1", residual_pool=False, residual_with_cls_embed=True, rel_pos_embed=False,
          proj_after_attn=False),
    _mvit("mvit_v2", residual_pool=True, residual_with_cls_embed=False, rel_pos_embed=True,
          proj_after_attn=True),
    _torchvision("swin3d_t", 32, 8),
    # timm: convolutions
    _timm("resnet18d"), _timm("efficientnet_lite0"), _timm("tf_efficientnet_b0"),
    _timm("ghostnet_100"), _timm("mobilenetv4_conv_small"), _timm("mobileone_s0"),
    _timm("regnety_002"), _timm("res2net50_26w_4s", layers=STAGES), _timm("dla34"),
    _timm("hrnet_w18_small"), _timm("cspresnet50"), _timm("repvgg_a0"), _timm("nf_regnet_b0"),
    _timm("nfnet_l0"), _timm("resnest14d"), _timm("skresnet18", layers=STAGES),
    _timm("ecaresnet26t", layers=STAGES), _timm("mixnet_s"), _timm("rexnet_100"),
    _timm("ese_vovnet19b_dw"), _timm("dpn68"), _timm("xception41"), _timm("selecsls42"),
    _timm("inception_next_tiny", depths=STAGES), _timm("convmixer_768_32"),
    _timm("convnextv2_atto", depths=STAGES), _timm("edgenext_xx_small", depths=STAGES),
    _timm("poolformer_s12"), _timm("fastvit_t8", layers=STAGES),
    _timm("repvit_m0_9"), _timm("starnet_s1", depths=STAGES),
    _timm("focalnet_tiny_srf"), _timm("bat_resnext26ts"),
    _timm("lambda_resnet26t"),
    # timm: attention and mixers
    _timm("vit_tiny_patch16_224", img_size=64, depth=2),
    _timm("deit_tiny_distilled_patch16_224", img_size=64, depth=2),
    _timm("beit_base_patch16_224", img_size=64, depth=2, embed_dim=192, num_heads=3),
    _timm("eva02_tiny_patch14_224", 56, img_size=56, depth=2),
    _timm("mixer_s32_224", img_size=64),
    _timm("resmlp_12_224", img_size=64),
    _timm("gmlp_ti16_224", img_size=64), _timm("coatnet_nano_rw_224", img_size=64),
    _timm("maxvit_rmlp_pico_rw_256", img_size=64), _timm("levit_128s", img_size=64),
    _timm("xcit_nano_12_p8_224", img_size=64, depth=2), _timm("mobilevit_xxs"),
    _timm("mobilevitv2_050"), _timm("pvt_v2_b0", depths=STAGES),
    _timm("cait_xxs24_224", img_size=64, depth=2), _timm("convit_tiny", img_size=64, depth=4),
    _timm("crossvit_tiny_240", 240), _timm("twins_svt_small", img_size=64, depths=STAGES),
    _timm("swinv2_tiny_window8_256", img_size=64, depths=STAGES),
    _timm("efficientformer_l1", 224, depths=(1, 1, 1, 2)), _timm("efficientvit_b0"),
    _timm("tiny_vit_5m_224", 224, depths=(1, 1, 2, 1)),
    _timm("mvitv2_tiny", img_size=64), _timm("davit_tiny", depths=STAGES),
    _timm("pit_ti_224", img_size=64, depth=STAGES[:3]),
    _timm("tnt_s_patch16_224", img_size=64, depth=2),
    _timm("botnet26t_256", img_size=64), _timm("halonet26t", 256),
    _timm("hiera_tiny_224", 224, stages=STAGES), _timm("sequencer2d_s", img_size=64, layers=STAGES),
    _timm("volo_d1_224", 224), _timm("gcvit_xxtiny", 224),
    # transformers: words
    _transformers("bert", "BertConfig", **SMALL),
    _transformers("roberta", "RobertaConfig", **SMALL),
    _transformers("distilbert", "DistilBertConfig", dim=64, n_layers=2, n_heads=4, hidden_dim=128,
                  vocab_size=100, max_position_embeddings=64),
    _transformers("albert", "AlbertConfig", embedding_size=32, **SMALL),
    _transformers("electra", "ElectraConfig", embedding_size=32, **SMALL),
    _transformers("mpnet", "MPNetConfig", **SMALL),
    _transformers("deberta", "DebertaConfig", relative_attention=True,
                  pos_att_type=["c2p", "p2c"], **SMALL),
    _transformers("deberta-v2", "DebertaV2Config", relative_attention=True,
                  pos_att_type=["p2c", "c2p"], **SMALL),
    _transformers("modernbert", "ModernBertConfig", pad_token_id=0, bos_token_id=1,
                  eos_token_id=2, cls_token_id=1, sep_token_id=2, **SMALL),
    _transformers("fnet", "FNetConfig", hidden_size=64, num_hidden_layers=2,
                  intermediate_size=128, vocab_size=100, max_position_embeddings=64),
    _transformers("squeezebert", "SqueezeBertConfig", embedding_size=64, **SMALL),
    _transformers("convbert", "ConvBertConfig", embedding_size=64, **SMALL),
    _transformers("gpt2", "GPT2Config", inputs=_masked, n_embd=64, n_layer=2, n_head=4,
                  vocab_size=100, n_positions=64),
    _transformers("gpt-neo", "GPTNeoConfig", inputs=_masked, hidden_size=64, num_layers=2,
                  num_heads=4, attention_types=[[["global", "local"], 1]], vocab_size=100,
                  max_position_embeddings=64, window_size=8),
    _transformers("gpt-neox", "GPTNeoXConfig", inputs=_masked, **SMALL),
    _transformers("opt", "OPTConfig", hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                  ffn_dim=128, vocab_size=100, max_position_embeddings=64, word_embed_proj_dim=64),
    _transformers("bloom", "BloomConfig", hidden_size=64, n_layer=2, n_head=4, vocab_size=100),
    _transformers("llama", "LlamaConfig", inputs=_masked, num_key_value_heads=2, **SMALL),
    _transformers("mistral", "MistralConfig", inputs=_masked, num_key_value_heads=2, **SMALL),
    _transformers("qwen2", "Qwen2Config", inputs=_masked, num_key_value_heads=2, **SMALL),
    _transformers("gemma", "GemmaConfig", inputs=_masked, num_key_value_heads=2, head_dim=16,
                  **SMALL),
    _transformers("phi", "PhiConfig", inputs=_masked, **SMALL),
    _transformers("t5-encoder", "T5Config", model="T5EncoderModel", d_model=64, d_kv=16, d_ff=128,
                  num_layers=2, num_heads=4, vocab_size=100),
    _transformers("t5", "T5Config", inputs=lambda: (_words(16), None, _words(8)), d_model=64,
                  d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=100,
                  decoder_start_token_id=0, use_cache=False),
    _transformers("bart", "BartConfig", d_model=64, encoder_layers=2, decoder_layers=2,
                  encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
                  decoder_ffn_dim=128, vocab_size=100, max_position_embeddings=64,
                  pad_token_id=1, bos_token_id=0, eos_token_id=2),
    # transformers: images, sound
    _transformers("vit", "ViTConfig", 32, **VISION),
    _transformers("deit", "DeiTConfig", 32, **VISION),
    _transformers("beit", "BeitConfig", 32, **VISION),
    _transformers("dinov2", "Dinov2Config", 32, **VISION),
    _transformers("swin", "SwinConfig", 32, image_size=32, patch_size=2, embed_dim=16,
                  depths=[2, 2], num_heads=[2, 4], window_size=4),
    _transformers("convnext", "ConvNextConfig", 32, hidden_sizes=[16, 32, 48, 64],
                  depths=[1, 1, 1, 1]),
    _transformers("resnet", "ResNetConfig", 64, embedding_size=16,
                  hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1]),
    _transformers("segformer", "SegformerConfig", 64, hidden_sizes=[16, 32, 40, 64],
                  depths=[1, 1, 1, 1]),
    _transformers("mobilevit", "MobileViTConfig", 64, image_size=64),
    _transformers("clip-vision", "CLIPVisionConfig", 32, "CLIPVisionModel", **VISION),
    _transformers("clip-text", "CLIPTextConfig", 0, "CLIPTextModel", eos_token_id=89, **SMALL),
    _transformers("siglip-vision", "SiglipVisionConfig", 32, "SiglipVisionModel", **VISION),
    _transformers("whisper-encoder", "WhisperConfig", 0,
                  "models.whisper.modeling_whisper.WhisperEncoder", _mel, d_model=64,
                  encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=128,
                  decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=128,
                  num_mel_bins=16, max_source_positions=32, vocab_size=100, pad_token_id=1,
                  bos_token_id=0, eos_token_id=2, decoder_start_token_id=3),
    _transformers("wav2vec2", "Wav2Vec2Config", inputs=_wave, hidden_size=64,
                  num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                  conv_dim=[32, 32, 32], conv_stride=[5, 2, 2], conv_kernel=[10, 3, 3],
                  num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, vocab_size=32),
    _transformers("detr", "DetrConfig", 64, use_timm_backbone=False, use_pretrained_backbone=False,
                  backbone=None, d_model=64, encoder_layers=2, decoder_layers=2,
                  encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
                  decoder_ffn_dim=128, num_queries=10),
)  # fmt: skip
