// SPDX-License-Identifier: Apache-2.0
// From a model's file to a rotation: model_to_kernel [config.json | directory | model.gguf]
#include <cstdio>
#include <exception>
#include <vector>

#include "posenc/model/read.h"
#include "posenc/posenc.h"

int main(int argc, char** argv) {
  using namespace posenc;
  const char* path = argc > 1 ? argv[1] : "examples/models/llama-3.1-8b";
  try {
    const ModelSpec model = read_model(path);
    require_readable(model);  // throws, naming what is missing: nothing is guessed
    for (const LayerSpec& layer : model.layers) {
      if (!layer.rotary) continue;
      // Microseconds: one a layer type. The position below is a part of a sequence as long as the
      // context that the frequencies were taken for.
      const RotaryPlan plan(*layer.rotary, DType::f32, {.outside = OutsideRange::allow});
      std::vector<float> q(static_cast<std::size_t>(layer.rotary->head_dim), 1.0f);
      OwnedPositions p = arange(1000, 1);
      p.axes = static_cast<std::int32_t>(layer.rotary->axes());
      p.value = std::vector<Index>(static_cast<std::size_t>(p.axes), 1000);  // a text token
      plan.apply(heads(q.data(), 1, 1, layer.rotary->head_dim), p);
      std::printf("%s, layer %d at position 1000: first channel %.6f\n", model.model_type.c_str(),
                  static_cast<int>(layer.index),
                  q[static_cast<std::size_t>(layer.rotary->blocks[0].offset)]);
      return 0;
    }
    std::printf("%s: no layer is rotary\n", model.model_type.c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
