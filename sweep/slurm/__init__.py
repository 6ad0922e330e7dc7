"""Cases as Slurm jobs: arrays by what they need, followed until they end, collected later."""
