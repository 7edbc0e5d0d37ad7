"""What clients send and get, as JSON."""

from service.schemas.answer import AnswerRequest, AnswerResponse, Answers, Span
from service.schemas.chat import Message
from service.schemas.classify import Classification, ClassifyRequest, ClassifyResponse, Label
from service.schemas.decide import DecideRequest, DecideResponse, Option, Question
from service.schemas.decoding import CUT, DecodingRequest, FinishReason
from service.schemas.embed import (
    EmbedRequest,
    EmbedResponse,
    EmbedSparseRequest,
    EmbedSparseResponse,
    SparseVector,
    TextsToEmbed,
)
from service.schemas.explain import ExplainRequest, ExplainResponse
from service.schemas.fill import Candidate, FillRequest, FillResponse, Mask
from service.schemas.generate import (
    Choice,
    GenerateEvent,
    GenerateRequest,
    GenerateResponse,
    TokenLogprob,
    TopLogprob,
)
from service.schemas.grammar import Grammar
from service.schemas.live import Live, LiveModel
from service.schemas.models import ModelCard, ModelHealth, ModelList, Sizes, Status
from service.schemas.request import LongTexts, Request, Response, Usage, UsageEvent
from service.schemas.rerank import Document, Ranked, RerankRequest, RerankResponse
from service.schemas.sampling import SamplingRequest
from service.schemas.summarize import SummarizeEvent, SummarizeRequest, SummarizeResponse
from service.schemas.tag import Entity, TagRequest, TagResponse
from service.schemas.tokens import DetokenizeRequest, DetokenizeResponse, Token, TokenizeRequest, TokenizeResponse
from service.schemas.tools import NamedTool, ToolCall, ToolCallPiece, ToolChoice
from service.schemas.translate import (
    Detected,
    TranslateEvent,
    TranslateRequest,
    TranslateResponse,
)

AnyRequest = (
    ClassifyRequest
    | RerankRequest
    | TagRequest
    | AnswerRequest
    | FillRequest
    | EmbedRequest
    | EmbedSparseRequest
    | DecideRequest
    | GenerateRequest
    | SummarizeRequest
    | TranslateRequest
    | ExplainRequest
    | TokenizeRequest
    | DetokenizeRequest
)
AnyEvent = GenerateEvent | SummarizeEvent | TranslateEvent | UsageEvent

__all__ = [
    "CUT",
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
    "DecideRequest",
    "DecideResponse",
    "DecodingRequest",
    "Detected",
    "DetokenizeRequest",
    "DetokenizeResponse",
    "Document",
    "EmbedRequest",
    "EmbedResponse",
    "EmbedSparseRequest",
    "EmbedSparseResponse",
    "Entity",
    "ExplainRequest",
    "ExplainResponse",
    "FillRequest",
    "FillResponse",
    "FinishReason",
    "GenerateEvent",
    "GenerateRequest",
    "GenerateResponse",
    "Grammar",
    "Label",
    "Live",
    "LiveModel",
    "LongTexts",
    "Mask",
    "Message",
    "ModelCard",
    "ModelHealth",
    "ModelList",
    "NamedTool",
    "Option",
    "Question",
    "Ranked",
    "Request",
    "RerankRequest",
    "RerankResponse",
    "Response",
    "SamplingRequest",
    "Sizes",
    "Span",
    "SparseVector",
    "Status",
    "SummarizeEvent",
    "SummarizeRequest",
    "SummarizeResponse",
    "TagRequest",
    "TagResponse",
    "TextsToEmbed",
    "Token",
    "TokenLogprob",
    "TokenizeRequest",
    "TokenizeResponse",
    "ToolCall",
    "ToolCallPiece",
    "ToolChoice",
    "TopLogprob",
    "TranslateEvent",
    "TranslateRequest",
    "TranslateResponse",
    "Usage",
    "UsageEvent",
]
