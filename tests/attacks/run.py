#!/usr/bin/env python3
"""Runs attacks on the program: run.py AXONN [ATTACK ...] [--long] [--seed N].

The seed of cluster, random_trainings and random_folders is AXONN_ATTACK_SEED, or the date if that is not
set.
"""

from accidents import accidents
from cluster import cluster
from damage import flipped_bits, short_writes, small_disks
from flips import flipped_state
from folders import folders
from harness import main
from hostile_requests import hostile_requests
from job_scripts import job_chain, job_scripts
from kills import kills
from random_folders import random_folders
from random_trainings import random_trainings
from signals import signals
from slurm import slurm
from strangers import strangers
from supervised import local_states, supervised
from system_calls import system_calls

main({attack.__name__: attack for attack in
      (kills, supervised, local_states, flipped_state, system_calls, short_writes, flipped_bits, small_disks,
       signals, slurm, job_scripts, job_chain, folders, accidents, strangers, hostile_requests,
       cluster, random_folders, random_trainings)})  # fmt: skip
