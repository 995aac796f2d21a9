// SPDX-License-Identifier: Apache-2.0
// The numbers behind the pictures of what is learned, as it starts.
#include "numbers.h"
#include "posenc/absolute/boxes.h"
#include "posenc/absolute/continuous_axial.h"
#include "posenc/absolute/embed.h"
#include "posenc/absolute/hierarchy.h"
#include "posenc/absolute/learned_presets.h"
#include "posenc/absolute/sinusoidal.h"
#include "posenc/positions.h"

using namespace posenc;
using namespace posenc_pictures;

namespace {

// Which row of its table each of ten tokens reads, the first two padding: one row a program.
void table_rows() {
  const Index tokens = 10;
  const std::vector<Index> ids{1, 1, 20, 21, 22, 23, 24, 25, 26, 27},
      mask{0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  const ConstTensorView id = tensor(ids.data(), {tokens}), real = tensor(mask.data(), {tokens});
  const std::pair<Learned, OwnedPositions> programs[] = {
      {bert_positions(8), arange(0, tokens)},  {gpt2_positions(8), from_mask(real, 0)},
      {opt_positions(8), from_mask(real, -1)}, {roberta_positions(8), from_tokens(id, 1)},
      {bart_positions(8), arange(0, tokens)},  {opennmt_tf_positions(8, 512), arange(0, tokens)}};
  Values all;
  for (const auto& [scheme, positions] : programs)
    for (Index t = 0; t < tokens; ++t)
      all.push_back(position_at(positions, 0, 0, t) + static_cast<double>(scheme.offset));
  print("learned_rows", all, tokens);
}

// Two lines of three words on a page of 1000 x 1000, as LayoutLMv3 has them.
void page_of_words() {
  const std::vector<Index> corners{80,  300, 560, 80,  330, 640,   // x0
                                   120, 120, 120, 300, 300, 300,   // y0
                                   270, 520, 900, 290, 600, 860,   // x1
                                   190, 190, 190, 370, 370, 370};  // y1
  Boxes s;
  s.width = 48, s.rows = 1001, s.coordinate = s.shape = 8, s.clip = true;
  Values v(corners.begin(), corners.end());
  print("boxes_corners", v, 6);
  print("boxes_rows", rows(s, explicit_positions(corners, 1, 4), 48, 3), 48);
}

// One network of two axes on grids, and on indices instead of -1 .. 1.
void networks() {
  ContinuousAxial c;
  c.width = 64, c.hidden = 32;
  const auto map = [&](Index n, double last) {
    Values at_two;
    for (const Index axis : {0, 1})
      for (Index i = 0; i < n * n; ++i)
        at_two.push_back(
            last *
            (2 * static_cast<double>(axis == 0 ? i / n : i % n) / static_cast<double>(n - 1) - 1));
    return rows(c, explicit_positions(at_two, 1, 2), 64, 5);
  };
  print("continuous_8", channel(map(8, 1), 64, 3), 8);
  print("continuous_32", channel(map(32, 1), 64, 3), 32);
  const auto line = [&](const char* name, double first, double last) {
    ContinuousAxial one = c;
    one.axes = 1;
    Values p, shown;
    for (Index i = 0; i <= 200; ++i)
      p.push_back(first + (last - first) * static_cast<double>(i) / 200);
    const Values y = rows(one, explicit_positions(p, 1, 1), 64, 5);
    for (const Index k : {0, 1, 2, 3})
      for (const double v : channel(y, 64, k)) shown.push_back(v);
    print(name, shown, 201);
  };
  line("continuous_unit", -2, 2);
  line("continuous_index", 0, 223);
}

// Mean square of what each part adds before the norm, as models start; one row a model.
void shares() {
  const Index width = 512, tokens = 256;
  const auto energy = [&](const Values& table, double scale) {
    Values y(at(tokens * width));
    EmbedPart part;
    part.rows = tensor(table.data(), {tokens, width}), part.scale = scale;
    embed({&part, 1}, {}, tensor(y.data(), {tokens, width}), inline_executor());
    double sum = 0;
    for (const double v : y) sum += v * v;
    return sum / static_cast<double>(y.size());
  };
  const auto table = [&](TableInitial how, double init, std::uint64_t seed) {
    Learned s = learned_rows(width, tokens);
    s.initializer = how, s.init = init;
    return s.start(Draws(seed));
  };
  const auto normal = [&](double init, std::uint64_t seed) {
    return table(TableInitial::normal, init, seed);
  };
  const Values sines = rows(Sinusoidal{.width = width}, arange(0, tokens), width);
  const double root = std::sqrt(static_cast<double>(width));
  const auto bert = [&](std::uint64_t seed) {
    return energy(table(TableInitial::truncated_normal, 0.02, seed), 1);
  };
  print("embed",
        {bert(1), bert(2), bert(3),                                  // BERT
         energy(normal(0.02, 1), 1), energy(normal(0.02, 2), 1), 0,  // GPT-2, transformers
         energy(normal(0.02, 1), 1), energy(normal(0.01, 2), 1), 0,  // GPT-2, OpenAI
         energy(normal(1 / root, 1), root), energy(sines, 1), 0,     // scaled
         energy(normal(1 / root, 1), 1), energy(sines, 1), 0},       // not scaled
        3);
}

// Likeness of the rows of 48 tokens: 4 paragraphs of 3 sentences of 4 tokens.
void families() {
  const Index n = 48;
  print("family_sinusoidal", all_likenesses(rows(Sinusoidal{.width = 64}, arange(0, n), 64), 64),
        n);
  print("family_learned", all_likenesses(rows(learned_rows(64, n), arange(0, n), 64), 64), n);
  std::vector<Index> ids;
  for (const Index per : {1, 4, 12})
    for (Index t = 0; t < n; ++t) ids.push_back(per == 1 ? t % 4 : per == 4 ? t / 4 % 3 : t / 12);
  Hierarchy h;
  h.width = 64, h.rows = {4, 3, 4};
  print("family_hierarchy", all_likenesses(rows(h, explicit_positions(ids, 1, 3), 64), 64), n);
  ContinuousAxial c;
  c.width = 64, c.hidden = 32, c.axes = 1;
  const Index line[] = {n};
  print("family_network", all_likenesses(rows(c, linspace_grid(line), 64, 5), 64), n);
}

}  // namespace

void posenc_pictures::print_learned() {
  for (void (*const print_block)() : {table_rows, page_of_words, networks, shares, families})
    print_block();
}
