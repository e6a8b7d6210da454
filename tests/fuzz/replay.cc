// main() for builds without libFuzzer: gives each file named on the command line to the target, once.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "fuzz.h"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "%s cannot be read\n", argv[i]);
      return 1;
    }
    // Named before it is tried, so that a crash tells whose fault it was.
    std::fprintf(stderr, "%s\n", argv[i]);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
}
