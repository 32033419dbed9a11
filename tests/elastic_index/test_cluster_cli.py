"""The commands on an index in a cluster, as a person types them."""

import json
from pathlib import Path
from typing import Any

import pytest
from cli_runner import RunCli
from cluster_corpus import Place
from elastic_fake import INFO, Reply, error, serve

CSV = "科室,标题,提问,回答\n" + "".join(
    f"{department},{title},{question},{answer}\n"
    for department, title, question, answer in (
        ("内科", "能喝酒吗", "血压高可以喝酒吗", "高血压最好不要喝酒。"),
        ("儿科", "发烧", "孩子发烧怎么办", "先物理降温。"),
        ("内科", "胃疼", "饭后胃疼吃什么药", "先做胃镜再说。"),
        ("骨科", "腰疼", "久坐腰疼怎么缓解", "多起来活动。"),
    )
)
COLUMNS = ("--question-column", "标题,提问", "--answer-column", "回答", "--domain-column", "科室")
MORE = "科室,标题,提问,回答\n骨科,骨折,骨折以后多久可以走路,六到八周复查以后再走。\n"


@pytest.fixture
def built(run_cli: RunCli, place: Place, server_url: str, tmp_path: Path) -> dict[str, Any]:
    """What `index --json` says; the index is at `place.folder`."""
    (tmp_path / "a.csv").write_text(CSV, encoding="utf-8")
    done = run_cli(
        *("index", tmp_path / "a.csv", "--out", place.folder, *COLUMNS, "--encoder", "fake", "--json"),
        *("--backend", "elasticsearch", "--es-url", server_url, "--es-index", place.name, "--replicas", "0"),
    )
    assert done.code == 0, done.err
    said: dict[str, Any] = json.loads(done.out)
    return said


@pytest.mark.service
def test_from_files_to_hits_and_back_to_a_folder(
    built: dict[str, Any], run_cli: RunCli, place: Place, tmp_path: Path
) -> None:
    folder = place.folder

    def said(*arguments: object) -> Any:
        done = run_cli(*arguments, "--json")
        assert done.code == 0, done.err
        return json.loads(done.out)

    physical = f"{place.name}-000001"
    assert (built["backend"]["name"], built["backend"]["physical"]) == (place.name, physical)
    found = said("info", folder)
    backend = found["backend"]
    assert {name: backend[name] for name in ("physical", "alias", "documents", "shards", "replicas", "health")} == {
        "physical": physical, "alias": physical, "documents": 4, "shards": 1, "replicas": 0, "health": "green",
    }  # fmt: skip
    assert (found["documents"], backend["bytes"] > 0, backend["kept"]) == (4, True, [])

    hits = said("search", folder, "血压高能喝酒吗", "--domain", "内科", "--domain-filter")["hits"]
    assert hits[0]["answers"] == ["高血压最好不要喝酒。"]
    assert {hit["domain"][0] for hit in hits} == {"内科"}
    answer = said("ask", folder, "血压高能喝酒吗", "--llm", "fake")
    assert answer["hits"][0]["doc_id"] == hits[0]["doc_id"]

    (tmp_path / "b.csv").write_text(MORE, encoding="utf-8")
    assert said("add", folder, tmp_path / "b.csv")["documents"] == 5
    hit = said("search", folder, "骨折", "--layer", "sparse")["hits"][0]
    assert said("remove", folder, hit["doc_id"])["documents"] == 4
    assert said("search", folder, "骨折", "--layer", "sparse")["hits"] == []
    assert said("rollback", folder)["generation"] == 4
    assert said("search", folder, "骨折", "--layer", "sparse")["hits"][0]["doc_id"] == hit["doc_id"]
    assert said("prune", folder)["pruned"] == [3]
    assert run_cli("export", folder, "--to", "beir", "--out", tmp_path / "beir").code == 0
    assert len((tmp_path / "beir" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()) == 5

    assert said("migrate", folder, "--to", "embedded") == {
        "folder": str(folder), "generation": 5, "documents": 5, "backend": None,
    }  # fmt: skip
    assert said("search", folder, "骨折", "--layer", "cascade")["hits"][0]["doc_id"] == hit["doc_id"]
    moved = said("migrate", folder, "--to", "elasticsearch", "--es-url", built["backend"]["urls"][0],
                 "--es-index", place.name, "--es-vectors", "flat", "--replicas", "0")  # fmt: skip
    assert moved["backend"]["vector_kind"] == "flat"
    assert said("search", folder, "骨折", "--layer", "hybrid")["hits"][0]["doc_id"] == hit["doc_id"]
    assert place.in_step()


@pytest.mark.service
def test_an_index_stays_where_it_is_when_it_is_built_again(
    built: dict[str, Any], run_cli: RunCli, place: Place, tmp_path: Path
) -> None:
    done = run_cli("index", tmp_path / "a.csv", "--out", place.folder, *COLUMNS, "--encoder", "none")
    assert done.code == 0, done.err
    assert f"Elasticsearch index {place.name} ({place.name}-000002)" in done.out
    assert place.in_step()
    shown = run_cli("info", place.folder, "--verify")
    assert (shown.code, "0 replicas, green" in shown.out) == (0, True)
    assert "the cluster holds every document" in shown.err
    (place.folder / "CURRENT").write_text("spoilt")
    again = run_cli("index", tmp_path / "a.csv", "--out", place.folder, *COLUMNS, "--encoder", "none")
    assert (again.code, f"({place.name}-000003)" in again.out) == (0, True)
    assert place.alias == place.searched


@pytest.mark.service
def test_doctor_looks_at_the_index_and_its_cluster(built: dict[str, Any], run_cli: RunCli, place: Place) -> None:
    done = run_cli("doctor", place.folder, "--json")
    checks = {check["check"]: check for check in json.loads(done.out)["checks"]}
    assert (done.code, checks["index"]["ok"], checks["Elasticsearch reachable"]["ok"]) == (0, True, True)
    assert f"{place.name} is {place.name}-000001" in checks["Elasticsearch index"]["found"]
    alone = run_cli("doctor", "--es-url", built["backend"]["urls"][0], "--es-index", f"{place.name}-not")
    assert (alone.code, "has no index" in alone.out) == (1, True)


def test_doctor_says_that_nobody_answers(run_cli: RunCli) -> None:
    done = run_cli("doctor", "--es-url", "http://127.0.0.1:1")
    assert (done.code, "is the server running there?" in done.out) == (1, True)


@pytest.mark.service
def test_secrets_stay_out_of_the_folder_and_of_what_is_said(
    run_cli: RunCli, place: Place, server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "c2VjcmV0OnZlcnktc2VjcmV0"
    (tmp_path / "es.toml").write_text(f'urls = "{server_url}"\napi_key = "{secret}"\n')
    (tmp_path / "a.csv").write_text(CSV, encoding="utf-8")
    monkeypatch.setenv("DMNRAG_ES_CONFIG", str(tmp_path / "es.toml"))
    options = ("--encoder", "none", "--backend", "elasticsearch", "--es-index", place.name)
    said = [
        run_cli("index", tmp_path / "a.csv", "--out", place.folder, *COLUMNS, *options),
        run_cli("info", place.folder, "--json"),
        run_cli("doctor", place.folder),
        run_cli("search", place.folder, "胃疼"),
    ]
    # The doctor finds that the key travels without TLS.
    assert [done.code for done in said] == [0, 0, 1, 0], said
    assert "the connection is not encrypted" in said[2].out
    assert not any(secret in done.out + done.err for done in said)
    kept = [path.read_bytes() for path in place.folder.rglob("*") if path.is_file()]
    assert kept
    assert not any(secret.encode() in content for content in kept)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--backend", "solr"), 2, "--backend 'solr': allowed are embedded, elasticsearch"),
        (("--backend", "elasticsearch"), 2, "no Elasticsearch server is named: give --es-url"),
        (
            ("--es-url", "http://localhost:9200"),
            2,
            "--es-url is for an index in a cluster: add --backend elasticsearch",
        ),
        (("--backend", "elasticsearch", "--es-url", "localhost:9200"), 2, "is not the URL of a server"),
        (("--backend", "elasticsearch", "--es-url", "http://u:p@h:1"), 2, "URL holds a user or password"),
        (("--backend", "elasticsearch", "--es-url", "http://127.0.0.1:1"), 1, "is the server running there?"),
        (("--backend", "elasticsearch", "--es-url", "http://h:1", "--es-index", "Bad"), 2, "cannot be called 'Bad'"),
        (
            ("--backend", "elasticsearch", "--es-url", "http://h:1", "--shards", "0"),
            2,
            "shards is 0: allowed are whole",
        ),
        (("--backend", "elasticsearch", "--es-url", "http://h:1", "--es-vectors", "ivf"), 2, "vector kind is 'ivf'"),
        (("--backend", "elasticsearch", "--es-url", "http://h:1", "--es-oversample", "0"), 2, "oversample is 0.0"),
    ],
)
def test_wrong_options_are_said_before_anything_is_read(
    run_cli: RunCli, tmp_path: Path, options: tuple[str, ...], code: int, words: str
) -> None:
    (tmp_path / "a.csv").write_text(CSV, encoding="utf-8")
    done = run_cli("index", tmp_path / "a.csv", "--out", tmp_path / "index", *COLUMNS, "--encoder", "none", *options)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "index").exists()


def test_a_folder_whose_name_is_none_for_the_cluster_asks_for_one(run_cli: RunCli, tmp_path: Path) -> None:
    options = ("--backend", "elasticsearch", "--es-url", "http://h:1")
    (tmp_path / "a.csv").write_text(CSV, encoding="utf-8")
    done = run_cli("index", tmp_path / "a.csv", "--out", tmp_path / "内科", *COLUMNS, *options)
    assert (done.code, "name the index in the cluster with --es-index" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (error(401, "security_exception"), "does not know this user or key (401"),
        (error(403, "security_exception"), "(403"),
        (Reply(INFO, product=False), "is not Elasticsearch"),
        (Reply({"version": {"number": "7.17.0"}}), "is version 7.17.0"),
    ],
)
def test_a_server_that_cannot_be_used_is_an_error_in_one_line(
    run_cli: RunCli, tmp_path: Path, reply: Reply, words: str
) -> None:
    (tmp_path / "a.csv").write_text(CSV, encoding="utf-8")
    with serve(lambda _: reply) as url:
        done = run_cli(
            *("index", tmp_path / "a.csv", "--out", tmp_path / "index", *COLUMNS, "--encoder", "none"),
            *("--backend", "elasticsearch", "--es-url", url),
        )
    assert done.out == ""
    assert done.code in (1, 2)
    assert words in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "index").exists()


@pytest.mark.service
def test_an_index_whose_cluster_is_gone_or_that_was_deleted_is_an_error(
    built: dict[str, Any], run_cli: RunCli, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("DMNRAG_ES_URLS", "http://127.0.0.1:1")
        for command in (("search", place.folder, "胃疼"), ("info", place.folder), ("remove", place.folder, "x")):
            done = run_cli(*command)
            assert (done.code, done.out, "is the server running there?" in done.err) == (1, "", True)
        assert run_cli("doctor", place.folder).code == 1
    place.cluster.call("", lambda es: es.indices.delete(index=f"{place.name}-000001"))
    done = run_cli("search", place.folder, "胃疼")
    assert (done.code, "build it again" in done.err) == (1, True)
