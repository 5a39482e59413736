"""Parts shared by the operators: intake, output, deadlines, ordering, statistics, budget split."""
