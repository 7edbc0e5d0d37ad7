"""What clients send and get, as JSON."""

from service.schemas.answer import AnswerRequest, AnswerResponse, Answers, Span
from service.schemas.classify import Classification, ClassifyRequest, ClassifyResponse, Label
from service.schemas.embed import EmbedRequest, EmbedResponse
from service.schemas.fill import Candidate, FillRequest, FillResponse, Mask
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
from service.schemas.request import LongTexts, Request, Response, Usage, UsageEvent
from service.schemas.rerank import Document, Ranked, RerankRequest, RerankResponse
from service.schemas.tag import Entity, TagRequest, TagResponse
from service.schemas.tokens import DetokenizeRequest, DetokenizeResponse, Token, TokenizeRequest, TokenizeResponse
from service.schemas.translate import TranslateEvent, TranslateRequest, TranslateResponse

AnyRequest = (
    ClassifyRequest
    | RerankRequest
    | TagRequest
    | AnswerRequest
    | FillRequest
    | EmbedRequest
    | GenerateRequest
    | TranslateRequest
    | TokenizeRequest
    | DetokenizeRequest
)
AnyEvent = GenerateEvent | TranslateEvent | UsageEvent

__all__ = [
    "AnswerRequest",
    "AnswerResponse",
    "Answers",
    "AnyEvent",
    "AnyRequest",
    "Candidate",
    "Choice",
    "Classification",
    "ClassifyRequest",
    "ClassifyResponse",
    "DetokenizeRequest",
    "DetokenizeResponse",
    "Document",
    "EmbedRequest",
    "EmbedResponse",
    "Entity",
    "FillRequest",
    "FillResponse",
    "FinishReason",
    "GenerateEvent",
    "GenerateRequest",
    "GenerateResponse",
    "Label",
    "LongTexts",
    "Mask",
    "ModelCard",
    "ModelHealth",
    "ModelList",
    "Ranked",
    "Request",
    "RerankRequest",
    "RerankResponse",
    "Response",
    "Span",
    "Status",
    "TagRequest",
    "TagResponse",
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
