// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine backward beside plain ones in double, on every instruction set.
#include "kernels/attention/fast_tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/attention/fast_strips.h"
#include "posenc/core/isa.h"
#include "support/random.h"

namespace posenc::inline v0::detail {
namespace {

using TileFloats = std::vector<float>;

TileFloats tile_floats(test::Random& random, Index n) {
  TileFloats x;
  for (Index i = 0; i < n; ++i) x.push_back(static_cast<float>(random.normal()));
  return x;
}
double wide(const TileFloats& x, Index at) {
  return static_cast<double>(x[static_cast<std::size_t>(at)]);
}

template <class Check>
void on_every_isa_tiles(const Check& check) {
  for (const Isa isa : supported_isas()) {
    SCOPED_TRACE(isa_name(isa));
    check(fast_tile_kernels(isa), fast_kernels(isa));
  }
}

TEST(FastTiles, WeightsAndSlopes) {
  test::Random random(4);
  on_every_isa_tiles([&](const FastTileKernels& k, const FastKernels& pack) {
    for (const std::size_t kind : {0u, 1u})
      for (const bool given : {false, true})
        for (const Index keys : {Index{1}, k.lanes, k.lanes + 1, 2 * k.lanes + 1, k.tile_keys}) {
          const Index rows = kind == 0 ? k.rows : k.few_rows, d = 5, v = 7, q_width = 16,
                      g_width = 32;
          const TileFloats q = tile_floats(random, rows * q_width),
                           g = tile_floats(random, rows * g_width),
                           key = tile_floats(random, keys * d),
                           value = tile_floats(random, keys * v),
                           starts = tile_floats(random, rows * k.tile_keys),
                           less = tile_floats(random, rows), shift = tile_floats(random, rows);
          TileFloats keys_packed(static_cast<std::size_t>(k.tile_keys * d)),
              values_packed(static_cast<std::size_t>(k.tile_keys * v)),
              p(static_cast<std::size_t>(rows * k.tile_stride), 9.0f), s = p;
          std::vector<const void*> key_at, value_at;
          std::vector<const float*> start;
          for (Index j = 0; j < keys; ++j)
            key_at.push_back(key.data() + j * d), value_at.push_back(value.data() + j * v);
          for (Index r = 0; r < rows; ++r) start.push_back(starts.data() + r * k.tile_keys);
          pack.pack_keys[0](keys_packed.data(), key_at.data(), keys, d, d);
          pack.pack_keys[0](values_packed.data(), value_at.data(), keys, v, v);
          k.slopes[kind][given ? 1 : 0](
              {keys_packed.data(), values_packed.data(), d, v, q_width, g_width},
              {q.data(), g.data(), given ? start.data() : nullptr, shift.data(), less.data(),
               p.data(), s.data(), keys});
          for (Index r = 0; r < rows; ++r)
            for (Index j = 0; j < keys; ++j) {
              double x = wide(shift, r) + (given ? wide(starts, r * k.tile_keys + j) : 0),
                     slope = -wide(less, r);
              for (Index c = 0; c < d; ++c) x += wide(q, r * q_width + c) * wide(key, j * d + c);
              for (Index c = 0; c < v; ++c)
                slope += wide(g, r * g_width + c) * wide(value, j * v + c);
              const double want = std::exp2(x);
              ASSERT_NEAR(wide(p, r * k.tile_stride + j), want, 1e-5 * want);
              ASSERT_NEAR(wide(s, r * k.tile_stride + j), want * slope,
                          1e-5 * want * (30 + std::fabs(slope)));
            }
          // Vectors behind the keys are left alone.
          for (Index j = (keys + k.lanes - 1) / k.lanes * k.lanes; j < k.tile_keys; ++j)
            ASSERT_EQ(wide(p, j), 9);
        }
  });
}

TEST(FastTiles, ProductsAlongBothAxes) {
  test::Random random(5);
  on_every_isa_tiles([&](const FastTileKernels& k, const FastKernels&) {
    for (const Index rows : {Index{1}, k.few_rows, k.rows, 2 * k.few_rows, k.rows + 1, k.tile_rows})
      for (const Index keys : {Index{1}, Index{9}, k.rows, k.tile_keys})
        for (const Index width : {k.lanes, 2 * k.lanes, 3 * k.lanes}) {
          const TileFloats a = tile_floats(random, (rows + k.rows) * k.tile_stride),
                           by_row = tile_floats(random, rows * width),
                           by_key = tile_floats(random, keys * width),
                           d_rows = tile_floats(random, (rows + k.rows) * width),
                           d_keys = tile_floats(random, (keys + k.rows) * width);
          TileFloats got_rows = d_rows, got_keys = d_keys;
          k.add_rows(got_rows.data(), a.data(), by_key.data(), rows, keys, width);
          k.add_outer(got_keys.data(), a.data(), by_row.data(), rows, keys, width);
          for (Index c = 0; c < width; ++c) {
            for (Index i = 0; i < rows; ++i) {
              double want = wide(d_rows, i * width + c);
              for (Index j = 0; j < keys; ++j)
                want += wide(a, i * k.tile_stride + j) * wide(by_key, j * width + c);
              ASSERT_NEAR(wide(got_rows, i * width + c), want, 1e-4);
            }
            for (Index j = 0; j < keys; ++j) {
              double want = wide(d_keys, j * width + c);
              for (Index i = 0; i < rows; ++i)
                want += wide(a, i * k.tile_stride + j) * wide(by_row, i * width + c);
              ASSERT_NEAR(wide(got_keys, j * width + c), want, 1e-4);
            }
          }
        }
  });
}

TEST(FastTiles, DiagonalsAndDot) {
  test::Random random(6);
  on_every_isa_tiles([&](const FastTileKernels& k, const FastKernels&) {
    for (const Index rows : {Index{1}, Index{2}, Index{7}, k.tile_rows})
      for (const Index keys : {Index{1}, Index{9}, k.lanes, k.tile_keys}) {
        const Index margin = k.tile_stride - k.tile_keys;
        TileFloats a(static_cast<std::size_t>(2 * margin + rows * k.tile_stride), 0.0f),
            got(static_cast<std::size_t>(rows + keys + 2 * k.lanes));
        for (Index i = 0; i < rows; ++i)
          for (Index j = 0; j < keys; ++j)
            a[static_cast<std::size_t>(margin + i * k.tile_stride + j)] =
                static_cast<float>(random.normal());
        k.diagonals(got.data(), a.data() + margin, rows, keys);
        for (Index n = 0; n < rows - 1 + keys; ++n) {
          double want = 0;
          for (Index i = 0; i < rows; ++i) {
            const Index j = n - (rows - 1) + i;
            if (j >= 0 && j < keys) want += wide(a, margin + i * k.tile_stride + j);
          }
          ASSERT_NEAR(wide(got, n), want, 1e-4) << rows << " " << keys << " " << n;
        }
      }
    const TileFloats x = tile_floats(random, 64), y = tile_floats(random, 64);
    double want = 0;
    for (Index i = 0; i < 64; ++i) want += wide(x, i) * wide(y, i);
    EXPECT_NEAR(static_cast<double>(k.dot(x.data(), y.data(), 64)), want, 1e-4);
  });
}

TEST(FastTiles, ScaledSums) {
  test::Random random(8);
  on_every_isa_tiles([&](const FastTileKernels& k, const FastKernels&) {
    const Index keys = 3 * k.lanes;
    const TileFloats s = tile_floats(random, keys), p = tile_floats(random, keys),
                     x = tile_floats(random, keys);
    std::vector<std::int32_t> index;
    for (Index j = 0; j < keys; ++j) index.push_back(static_cast<std::int32_t>(j * 7 % keys));
    TileFloats slice = s, indexed = s;
    k.add_scaled(slice.data(), p.data(), x.data(), keys);
    k.add_scaled_indexed(indexed.data(), p.data(), x.data(), index.data(), keys);
    for (Index j = 0; j < keys; ++j) {
      ASSERT_NEAR(wide(slice, j), wide(s, j) + wide(p, j) * wide(x, j), 1e-5);
      ASSERT_NEAR(wide(indexed, j), wide(s, j) + wide(p, j) * wide(x, j * 7 % keys), 1e-5);
    }
  });
}

TEST(FastTiles, ProductsAlongDiagonals) {
  test::Random random(7);
  on_every_isa_tiles([&](const FastTileKernels& k, const FastKernels&) {
    for (const Index rows : {Index{1}, Index{7}, 2 * k.few_rows, k.tile_rows})
      for (const Index keys : {Index{1}, Index{9}, k.tile_keys}) {
        const Index margin = k.tile_stride - k.tile_keys, width = 2 * k.lanes * 3 / 2;
        const Index lines = rows + keys + 4 * k.rows, zero = rows + 2 * k.rows;  // diagonal 0
        TileFloats a(static_cast<std::size_t>(2 * margin + (rows + k.rows) * k.tile_stride), 0.0f);
        for (Index i = 0; i < rows; ++i)
          for (Index j = 0; j < keys; ++j)
            a[static_cast<std::size_t>(margin + i * k.tile_stride + j)] =
                static_cast<float>(random.normal());
        const TileFloats by_line = tile_floats(random, lines * width),
                         by_row = tile_floats(random, rows * width),
                         d_rows = tile_floats(random, (rows + k.rows) * width),
                         d_lines = tile_floats(random, lines * width);
        TileFloats got_rows = d_rows, got_lines = d_lines, want_lines = d_lines;
        k.add_rows_along(got_rows.data(), a.data() + margin, by_line.data() + zero * width, rows,
                         keys, width);
        k.add_outer_along(got_lines.data() + zero * width, a.data() + margin, by_row.data(), rows,
                          keys, width);
        for (Index i = 0; i < rows; ++i)
          for (Index c = 0; c < width; ++c) {
            double want = wide(d_rows, i * width + c);
            for (Index j = 0; j < keys; ++j) {
              const double x = wide(a, margin + i * k.tile_stride + j);
              want += x * wide(by_line, (zero + j - i) * width + c);
              want_lines[static_cast<std::size_t>((zero + j - i) * width + c)] +=
                  static_cast<float>(x * wide(by_row, i * width + c));
            }
            ASSERT_NEAR(wide(got_rows, i * width + c), want, 1e-4) << rows << " " << keys;
          }
        for (Index n = 0; n < lines * width; ++n)
          ASSERT_NEAR(wide(got_lines, n), wide(want_lines, n), 1e-4) << rows << " " << keys;
      }
  });
}

}  // namespace
}  // namespace posenc::v0::detail
