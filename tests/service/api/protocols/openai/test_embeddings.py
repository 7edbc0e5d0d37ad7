from __future__ import annotations

import base64

import numpy as np
import pytest

from tests.service.api.conftest import Client, post
from tests.service.api.protocols.openai.conftest import ids_of, refused

TEXTS = ["The dog was good.", "Dan loves ice cream."]


async def test_vectors_are_those_of_the_native_route(client: Client) -> None:
    answer = await post(client, "/v1/embeddings", model="embed", input=TEXTS)
    native = await post(client, "/embed", input=TEXTS)

    assert answer["object"] == "list" and answer["model"] == "embed"
    assert [(each["object"], each["index"]) for each in answer["data"]] == [("embedding", 0), ("embedding", 1)]
    assert [each["embedding"] for each in answer["data"]] == native["embeddings"]
    tokens = native["usage"]["prompt_tokens"]
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


async def test_the_route_is_also_where_other_servers_of_vectors_have_it(client: Client) -> None:
    assert await post(client, "/embeddings", input=TEXTS) == await post(client, "/v1/embeddings", input=TEXTS)
    refusals = [await client.post(path, json={"input": []}) for path in ("/embeddings", "/v1/embeddings")]
    assert refusals[0].status_code == 400 and refusals[0].json() == refusals[1].json()


async def test_base64_is_little_endian_float32(client: Client) -> None:
    numbers = await post(client, "/v1/embeddings", input=TEXTS[0])
    written = await post(client, "/v1/embeddings", input=TEXTS[0], encoding_format="base64")

    vector = np.frombuffer(base64.b64decode(written["data"][0]["embedding"]), "<f4")
    assert vector.tolist() == numbers["data"][0]["embedding"]


async def test_token_ids_have_the_vectors_of_their_texts(client: Client) -> None:
    ids = [await ids_of(client, "embed", text) for text in TEXTS]
    of_texts = await post(client, "/v1/embeddings", input=TEXTS)
    of_ids = await post(client, "/v1/embeddings", input=ids)
    of_one = await post(client, "/v1/embeddings", input=ids[0])

    assert of_ids == of_texts
    assert of_one["data"][0]["embedding"] == pytest.approx(of_texts["data"][0]["embedding"], abs=1e-5)


async def test_dimensions_are_the_first_of_the_vector(client: Client) -> None:
    whole = await post(client, "/v1/embeddings", input=TEXTS)
    short = await post(client, "/v1/embeddings", input=TEXTS, dimensions=8)

    vectors = np.array([each["embedding"] for each in whole["data"]])[:, :8]
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    np.testing.assert_allclose([each["embedding"] for each in short["data"]], vectors, atol=1e-6)


async def test_what_is_too_long_is_cut_where_that_is_asked_for(client: Client) -> None:
    native = await post(client, "/embed", input="a " * 100, truncate=True)
    for asked in ({"truncate": True}, {"truncate_prompt_tokens": -1}, {"truncate_prompt_tokens": 64}):
        answer = await post(client, "/v1/embeddings", input="a " * 100, **asked)
        assert answer["data"][0]["embedding"] == native["embeddings"][0]
    error = await refused(client, "/v1/embeddings", input="a", truncate_prompt_tokens=63)

    assert error["param"] == "truncate_prompt_tokens" and "own length, 64" in error["message"]


async def test_a_prompt_and_windows_are_the_native_ones(client: Client) -> None:
    for asked in ({"prompt": "Dan "}, {"windows": True}):
        native = await post(client, "/embed", input="a " * (100 if "windows" in asked else 3), **asked)
        answer = await post(client, "/v1/embeddings", input="a " * (100 if "windows" in asked else 3), **asked)
        assert answer["data"][0]["embedding"] == native["embeddings"][0]


@pytest.mark.parametrize(
    "fields",
    [
        {"input_type": "query"},
        {"late_chunking": True},
        {"add_special_tokens": False},
        {"embed_dtype": "float16"},
        {"endianness": "big"},
        {"output_dimension": 8},
        {"output_dtype": "int8"},
        {"embedding_type": "binary"},
        {"encoding_type": "ubinary"},
    ],
)
async def test_what_would_change_the_vectors_and_is_not_done_is_refused(
    client: Client, fields: dict[str, object]
) -> None:
    assert next(iter(fields)) in (await refused(client, "/v1/embeddings", input="a", **fields))["message"]


async def test_vectors_may_keep_their_length(client: Client) -> None:
    native = await post(client, "/embed", input="a", normalize=False)
    for said in ({"normalize": False}, {"normalized": False, "max_length": 512, "num_beams": 4}):
        answer = await post(client, "/v1/embeddings", input="a", **said)
        assert answer["data"][0]["embedding"] == native["embeddings"][0]
    assert (await refused(client, "/v1/embeddings", input="a", prompt_name="none"))["param"] == "prompt_name"


async def test_nulls_and_unknown_fields_are_passed_over(client: Client) -> None:
    plain = await post(client, "/v1/embeddings", input="a")
    more = await post(client, "/v1/embeddings", input="a", model=None, dimensions=None, user="me", unheard_of=[1])

    assert more == plain


@pytest.mark.parametrize(
    ("input_", "what"),
    [
        ([], "input is empty"),
        ("a " * 100, "the limit is 64"),
        ([5] * 65, "the limit is 64"),
        ([[5], []], "an empty list of token ids"),
        ([100_000], "ids go from 0 to"),
        ([5, "a"], "input.1: Input should be a valid integer"),
        (None, "Field required"),
    ],
)
async def test_wrong_inputs_are_refused_in_openais_form(client: Client, input_: object, what: str) -> None:
    error = await refused(client, "/v1/embeddings", input=input_)

    assert what in error["message"] and error["param"] == "input"


async def test_more_inputs_than_are_allowed_are_refused_as_lists_of_ids_too(client: Client) -> None:
    for inputs in (["a"] * 300, [[5]] * 300):
        response = await client.post("/v1/embeddings", json={"input": inputs})
        assert response.status_code == 413 and response.json()["error"]["code"] == "too_large"
    assert (await client.post("/v1/embeddings", json={"input": [5] * 60})).status_code == 200
