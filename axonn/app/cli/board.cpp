#include "axonn/app/board/board.h"

#include <chrono>
#include <iostream>
#include <thread>

#include <CLI/CLI.hpp>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/flags.h"
#include "axonn/app/cli/stop_signals.h"

namespace axonn {

namespace {

constexpr const char* kBoardExamples =
    R"(Examples:
  axonn board out/run
      then open http://127.0.0.1:8001; the run may start later
  axonn board out
      all runs in the folder, and those that start there later
  AXONN_BOARD_TOKEN=secret axonn board out --host 0.0.0.0
      for other machines, whose users must know the token
  ssh -L 8001:127.0.0.1:8001 login.cluster axonn board /scratch/me/out
      on a cluster's login node, seen on this machine at http://127.0.0.1:8001)";

}  // namespace

int run_board(const Arguments& arguments) {
  std::vector<std::string> paths;
  HttpServer::Options http{.port = 8001};
  CLI::App app("Shows runs on a web page while they train: losses, speed, memory, differences.",
               "axonn board");
  app.footer(kBoardExamples);
  app.add_option("RUN", paths, "a run's output.dir, or a folder that holds those of several runs")
      ->required();
  app.add_option("--host", http.host,
                 "address to listen on; others than this machine's own need --token")
      ->capture_default_str();
  app.add_option("--port", http.port, "port; 0: any that is free")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  app.add_option("--token", http.token, "the page asks for it before it shows anything")
      ->envname("AXONN_BOARD_TOKEN");
  if (!parse_flags(app, arguments)) return 0;

  Board board(paths);
  HttpServer server(http);
  add_board(server, board);
  const std::atomic<bool>& stop = catch_stop_signals();
  server.start();
  std::cout << "the board is at " << server.address() << "; Ctrl-C ends it" << std::endl;
  while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  server.stop();
  return 0;
}

}  // namespace axonn
