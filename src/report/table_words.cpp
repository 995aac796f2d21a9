// SPDX-License-Identifier: Apache-2.0
#include "extend_rows.h"

namespace posenc::report {

void add_table_words(Words& w, ExtendOptions& o, bool required) {
  w.text("--tensor", o.tensor, "NAME", "the table's name in the file").is_required = required;
  w.text("--to", o.to, "N|HxW",
         "new size: N rows of a line, kept rows included; HxW of a grid, without them")
      .is_required = required;
  w.text("--how", o.how, "HOW",
         "linear, stretch, tile, hierarchical (lines); bilinear, bicubic, geometric (grids)")
      .is_required = required;
  w.whole("--prefix", o.prefix, 0, kMost, "N",
          "rows kept at the front: class and register tokens, offset rows");
  w.whole("--suffix", o.suffix, 0, kMost, "N", "rows kept at the end");
  w.text("--grid", o.grid, "HxW",
         required ? "the table's own grid (default: the square of its rows)"
                  : "of extend: the table's own grid; of rows: an image whose cells the positions "
                    "count, row by row");
  w.text("--rows", o.rows, "KIND",
         "what the rows are: positions, offsets (an odd number on each axis) or buckets (a fixed "
         "number)\n(default: by the tensor's name)");
  w.text("--order", o.order, "ORDER",
         "its axes: t rows, y x of a grid, c channels, 1 of size one\n"
         "(default: tc, 1tc or 1yxc by its shape)");
  w.flag("--align-corners", o.align_corners, "map the ends onto the ends");
  w.flag("--antialias", o.antialias, "as timm and JAX do: a = -0.5, border renormalised");
  w.real("--keys", o.a, "A", "parameter a of bicubic (default: -0.75, with --antialias -0.5)");
  w.text("--border", o.border, "B",
         "repeat or renormalise (default: by --antialias); of stretch repeat (default) or "
         "extrapolate");
  w.real("--offset", o.offset, "X", "added to the new size where the factor is computed: DINO 0.1");
  w.text("--scale", o.scale, "F|FyxFx", "factor that sets the sampling points instead of the size");
  w.real("--alpha", o.alpha, "A", "parameter of hierarchical (default: 0.4)");
}

}  // namespace posenc::report
