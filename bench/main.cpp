// SPDX-License-Identifier: Apache-2.0
// The lines of `posenc bench` under Google Benchmark: its repetitions, filters and JSON. Every line
// is followed by its limit, so that only ratios within one run are compared.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <memory>

#include "lines/line.h"

int main(int argc, char** argv) {
  using namespace posenc::bench;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const std::vector<Line> all = lines();
  for (const Line& line : all)
    for (const bool limit : {false, true}) {
      if (limit && (line.limit_name.empty() || line.measured)) continue;
      const std::string name = limit ? line.name + "/limit:" + line.limit_name : line.name;
      benchmark::internal::Benchmark* b =
          benchmark::RegisterBenchmark(name.c_str(), [&line, limit](benchmark::State& state) {
            try {
              if (line.measured) {
                for (auto _ : state) state.SetIterationTime(line.measured(1).seconds);
                return;
              }
              const Prepared p = line.prepare();
              if (!(p.max_error <= p.bound)) return state.SkipWithError("wrong result");
              const auto& f = limit ? p.limit : p.run;
              for (auto _ : state) f();
              state.counters["GB/s"] =
                  benchmark::Counter(line.bytes * static_cast<double>(state.iterations()) / 1e9,
                                     benchmark::Counter::kIsRate);
              if (!limit) state.counters["max_error"] = p.max_error;
            } catch (const std::exception& e) {
              state.SkipWithError(e.what());
            }
          });
      if (line.measured) b->UseManualTime()->Iterations(1);
    }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
