# SPDX-License-Identifier: Apache-2.0
"""Which methods may have their q and k overwritten: read from their source."""
import pytest

from posenc.hf._source import may_overwrite


class Methods:
    def plain(self, x, cos, sin):
        q, k = self.a(x).view(2, 3).transpose(0, 1), self.b(x)
        q, k = turn(q, k, cos, sin)
        return q @ k

    def of_a_fused_projection(self, x, cos, sin):
        qkv = self.qkv(x)
        q, k, v = qkv.chunk(3)
        q, k = turn(q, k, cos, sin)
        return q, k, v

    def one(self, x, cos, sin):
        q = self.a(x)
        q = turn(q, cos, sin)
        return q

    def of_an_argument(self, q, x, cos, sin):
        k = self.b(x)
        q, k = turn(q, k, cos, sin)
        return q, k

    def of_a_view_of_an_argument(self, x, cos, sin):
        q, k = x.view(2, 3), self.b(x)
        q, k = turn(q, k, cos, sin)
        return q, k

    def read_afterwards(self, x, cos, sin):
        raw = self.a(x)
        q, k = raw.view(2, 3), self.b(x)
        q, k = turn(q, k, cos, sin)
        return q, k, raw.sum()

    def held_by_an_object(self, x, cos, sin):
        q, k = self.a(x), self.b(x)
        self.kept = k
        q, k = turn(q, k, cos, sin)
        return q, k

    def under_other_names(self, x, cos, sin):
        q, k = self.a(x), self.b(x)
        y, z = turn(q, k, cos, sin)
        return y, z, q

    def twice(self, x, cos, sin):
        q, k = self.a(x), self.b(x)
        q, k = turn(q, k, cos, sin)
        q, k = turn(q, k, cos, sin)
        return q, k

    def in_a_loop(self, x, cos, sin):
        q, k = self.a(x), self.b(x)
        for _ in range(2):
            q, k = turn(q, k, cos, sin)
        return q, k

    def handed_on(self, x, cos, sin, cache):
        q, k = self.a(x), self.b(x)
        cache.keep(k)
        q, k = turn(q, k, cos, sin)
        return q, k


@pytest.mark.parametrize("name, made_by", [("plain", {"a", "b"}), ("of_a_fused_projection", {"qkv"}), ("one", {"a"})])
def test_what_nobody_else_reads_may_be_overwritten(name, made_by):
    assert may_overwrite(getattr(Methods, name), "turn") == made_by


@pytest.mark.parametrize("name", [
    "of_an_argument", "of_a_view_of_an_argument", "read_afterwards", "held_by_an_object", "under_other_names", "twice", "in_a_loop", "handed_on"])
def test_what_others_may_read_is_not(name):
    assert may_overwrite(getattr(Methods, name), "turn") is None


def test_a_method_without_a_source_is_not():
    assert may_overwrite(eval("lambda q, k: turn(q, k)"), "turn") is None
