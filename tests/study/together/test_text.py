import hashlib
import io
import re
import urllib.error

import pytest
import torch

from companion.study.together import downloads
from companion.study.together.downloads import downloaded
from companion.study.together.text import random_windows, shakespeare, successive_windows, syllables

CONTENT = b"to be or not to be"
CHECKSUM = hashlib.sha256(CONTENT).hexdigest()
ADDRESS = "https://example.org/text"


@pytest.fixture
def network(monkeypatch):
    """What an address answers, and how often it was asked."""
    asked = []

    def answer(content):
        def urlopen(address, timeout):
            asked.append(address)
            if content is None:
                raise urllib.error.URLError("no network")
            return io.BytesIO(content)

        monkeypatch.setattr(downloads.urllib.request, "urlopen", urlopen)
        return asked

    return answer


def test_an_absent_file_is_downloaded_once(tmp_path, network):
    asked = network(CONTENT)
    for _ in range(2):
        assert downloaded(tmp_path / "a" / "text", ADDRESS, CHECKSUM).read_bytes() == CONTENT
    assert asked == [ADDRESS]


@pytest.mark.parametrize("content", [None, b"something else"])
def test_what_cannot_be_downloaded_whole_is_not_there_and_the_error_names_the_file(tmp_path, network, content):
    network(content)
    with pytest.raises(FileNotFoundError, match=r"text is absent and cannot be downloaded .* COMPANION_DATA"):
        downloaded(tmp_path / "text", ADDRESS, CHECKSUM)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_refused(tmp_path, network):
    network(CONTENT)
    (tmp_path / "text").write_bytes(b"to be or not")
    with pytest.raises(ValueError, match=r"text is damaged: its SHA-256 is .* remove it"):
        downloaded(tmp_path / "text", ADDRESS, CHECKSUM)


def test_shakespeare_is_asked_for_where_data_lie(tmp_path, monkeypatch, network):
    network(None)
    monkeypatch.setenv("COMPANION_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="tinyshakespeare"):
        shakespeare()


def test_a_text_comes_apart_in_three_pieces_and_together_again():
    nonsense = syllables()
    whole = torch.cat([nonsense.train, nonsense.validation, nonsense.test])
    assert re.fullmatch("(abe|ac|dio|bed){4000}", "".join(nonsense.alphabet[place] for place in whole))
    assert len(nonsense.train) == int(0.9 * len(whole))
    assert abs(len(nonsense.validation) - len(nonsense.test)) <= 1


def test_successive_windows_hold_every_character_once_and_predict_the_next():
    part = successive_windows(torch.arange(23), 5)
    assert part.inputs.flatten().tolist() == list(range(20))
    assert torch.equal(part.targets, part.inputs + 1)


def test_random_windows_depend_on_the_seed_alone_and_reach_the_whole_text():
    one, again, other = (random_windows(torch.arange(50), 4, 4000, seed) for seed in (0, 0, 1))
    assert torch.equal(one.inputs, again.inputs)
    assert not torch.equal(one.inputs, other.inputs)
    assert one.inputs.shape == (1000, 4)
    assert torch.equal(one.targets, one.inputs + 1)
    assert (int(one.inputs.min()), int(one.targets.max())) == (0, 49)
