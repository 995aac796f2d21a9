// SPDX-License-Identifier: Apache-2.0
// Text, image patches and audio frames of one clip on one time axis, with the patches' two axes of
// space beside it: which tokens belong to the same moment is then a property of their positions.
#include <cmath>
#include <cstdio>
#include <vector>

#include "posenc/absolute/crossmodal.h"
#include "posenc/positions.h"

int main() {
  using namespace posenc;
  enum : Index { text, image, audio };
  enum : Index { seconds, rows, columns };  // the common axes

  // Eight words, half a second each; two video frames of 3 x 4 patches of 16 pixels, one a second;
  // 200 audio frames of 20 ms, which begin half a second late.
  const Modality clip[] = {
      {text, arange(0, 8), {0, -1, -1}, {0.5, 1, 1}, {0, 0, 0}},
      {image, grid({2, 3, 4}), {0, 1, 2}, {1, 16, 16}, {0, 8, 8}},
      {audio, arange(0, 200), {0, -1, -1}, {0.02, 1, 1}, {0.5, 0, 0}},
  };
  const OwnedPositions positions = modality_positions(clip, 3);

  CrossModal scheme;
  scheme.width = 96;
  scheme.modalities = 3;
  scheme.widths = {32, 32, 32};            // channels of seconds, rows, columns
  scheme.scale = {100, 0.1, 0.1};          // a hundredth of a second and ten pixels are one radian
  std::vector<double> types(3 * 96, 0.0);  // learned; zero here, to look at the rest
  const ConstTensorView parameters[] = {tensor(types.data(), {3, 96})};
  LoweredInput lowered;
  scheme.lower(parameters, lowered);

  std::vector<double> row(static_cast<std::size_t>(positions.count() * 96));
  apply_input({}, positions, lowered, tensor(row.data(), {positions.count(), 96}));

  // The word at 1.5 s against all audio frames: the nearest is the frame of that moment.
  const Index word = 3, first_frame = 8 + 24;
  Index nearest = 0;
  double best = -1;
  for (Index f = 0; f < 200; ++f) {
    double product = 0;
    for (Index c = 0; c < 96; ++c)
      product += row[static_cast<std::size_t>(word * 96 + c)] *
                 row[static_cast<std::size_t>((first_frame + f) * 96 + c)];
    if (product > best) best = product, nearest = f;
  }
  std::printf("word %d at %.2f s: audio frame %d at %.2f s\n", static_cast<int>(word),
              position_at(positions, 1 + seconds, 0, word), static_cast<int>(nearest),
              position_at(positions, 1 + seconds, 0, first_frame + nearest));
  const bool text_has_no_place = row[static_cast<std::size_t>(word * 96 + 32)] == 0 &&
                                 row[static_cast<std::size_t>(word * 96 + 95)] == 0;
  std::printf("words have no row and column: %s\n", text_has_no_place ? "yes" : "no");
  return nearest == 50 && text_has_no_place && rows + columns == 3 ? 0 : 1;
}
