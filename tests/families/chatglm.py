"""The modules of ChatGLM, by the names that the model builder looks for; its own code is not part of transformers.

The model holds weights for the builder to read, and cannot be run.
"""
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel


class ChatGLMConfig(PretrainedConfig):
    model_type = "chatglm"


class Norm(nn.RMSNorm):
    """The builder finds norms by this name."""


class Parts(nn.Module):
    """Named modules."""

    def __init__(self, **modules):
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


class GLMBlock(Parts):
    """A layer; the builder finds layers by this name."""

    def __init__(self, config):
        width, inner = config.hidden_size, config.ffn_hidden_size
        packed = width + 2 * config.multi_query_group_num * width // config.num_attention_heads
        super().__init__(
            input_layernorm=Norm(width),
            self_attention=Parts(
                query_key_value=nn.Linear(width, packed), dense=nn.Linear(width, width, bias=False)),
            post_attention_layernorm=Norm(width),
            mlp=Parts(
                dense_h_to_4h=nn.Linear(width, 2 * inner, bias=False), dense_4h_to_h=nn.Linear(inner, width, bias=False)),
        )


class ChatGLMModel(PreTrainedModel):
    config_class = ChatGLMConfig

    def __init__(self, config):
        super().__init__(config)
        width, words = config.hidden_size, config.vocab_size
        layers = nn.ModuleList(GLMBlock(config) for _ in range(config.num_layers))
        self.transformer = Parts(
            embedding=Parts(word_embeddings=nn.Embedding(words, width)),
            encoder=Parts(layers=layers, final_layernorm=Norm(width)),
            output_layer=nn.Linear(width, words, bias=False),
        )
        self.post_init()


AutoConfig.register("chatglm", ChatGLMConfig)
AutoModelForCausalLM.register(ChatGLMConfig, ChatGLMModel)
