"""What clients send and get, as JSON."""

from service.schemas.classify import Classification, ClassifyRequest, ClassifyResponse, Label
from service.schemas.embed import EmbedRequest, EmbedResponse
from service.schemas.generate import (
    Choice,
    FinishReason,
    GenerateEvent,
    GenerateRequest,
    GenerateResponse,
    TokenLogprob,
    TopLogprob,
)
from service.schemas.models import ModelCard, ModelHealth, ModelList, Status
from service.schemas.request import Request, Response, Usage, UsageEvent
from service.schemas.tokens import DetokenizeRequest, DetokenizeResponse, Token, TokenizeRequest, TokenizeResponse
from service.schemas.translate import TranslateEvent, TranslateRequest, TranslateResponse

AnyRequest = ClassifyRequest | EmbedRequest | GenerateRequest | TranslateRequest | TokenizeRequest | DetokenizeRequest
AnyEvent = GenerateEvent | TranslateEvent | UsageEvent

__all__ = [
    "AnyEvent",
    "AnyRequest",
    "Choice",
    "Classification",
    "ClassifyRequest",
    "ClassifyResponse",
    "DetokenizeRequest",
    "DetokenizeResponse",
    "EmbedRequest",
    "EmbedResponse",
    "FinishReason",
    "GenerateEvent",
    "GenerateRequest",
    "GenerateResponse",
    "Label",
    "ModelCard",
    "ModelHealth",
    "ModelList",
    "Request",
    "Response",
    "Status",
    "Token",
    "TokenLogprob",
    "TokenizeRequest",
    "TokenizeResponse",
    "TopLogprob",
    "TranslateEvent",
    "TranslateRequest",
    "TranslateResponse",
    "Usage",
    "UsageEvent",
]
