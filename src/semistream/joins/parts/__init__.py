"""Parts shared by the operators: intake, output, deadlines, order, statistics, budget split."""
